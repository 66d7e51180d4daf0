//! Constants of the kernel's interfaces to IPVS (`linux/ip_vs.h`) and ipset (`linux/netfilter/ipset/ip_set.h`),
//! with the kernel's names.

#![allow(missing_docs, reason = "the kernel's names, documented by the kernel")]

pub const NLA_F_NET_BYTEORDER: u16 = 0x4000;

pub const GENL_ID_CTRL: u16 = 0x10;
pub const CTRL_CMD_GETFAMILY: u8 = 3;
pub const CTRL_ATTR_FAMILY_ID: u16 = 1;
pub const CTRL_ATTR_FAMILY_NAME: u16 = 2;
pub const IPVS_GENL_NAME: &str = "IPVS";
pub const IPVS_GENL_VERSION: u8 = 1;

pub const IPVS_CMD_NEW_SERVICE: u8 = 1;
pub const IPVS_CMD_SET_SERVICE: u8 = 2;
pub const IPVS_CMD_DEL_SERVICE: u8 = 3;
pub const IPVS_CMD_GET_SERVICE: u8 = 4;
pub const IPVS_CMD_NEW_DEST: u8 = 5;
pub const IPVS_CMD_SET_DEST: u8 = 6;
pub const IPVS_CMD_DEL_DEST: u8 = 7;
pub const IPVS_CMD_GET_DEST: u8 = 8;
pub const IPVS_CMD_NEW_DAEMON: u8 = 9;
pub const IPVS_CMD_DEL_DAEMON: u8 = 10;
pub const IPVS_CMD_GET_DAEMON: u8 = 11;
pub const IPVS_CMD_SET_CONFIG: u8 = 12;
pub const IPVS_CMD_GET_CONFIG: u8 = 13;
pub const IPVS_CMD_GET_INFO: u8 = 15;
pub const IPVS_CMD_ZERO: u8 = 16;
pub const IPVS_CMD_FLUSH: u8 = 17;

pub const IPVS_CMD_ATTR_SERVICE: u16 = 1;
pub const IPVS_CMD_ATTR_DEST: u16 = 2;
pub const IPVS_CMD_ATTR_DAEMON: u16 = 3;
pub const IPVS_CMD_ATTR_TIMEOUT_TCP: u16 = 4;
pub const IPVS_CMD_ATTR_TIMEOUT_TCP_FIN: u16 = 5;
pub const IPVS_CMD_ATTR_TIMEOUT_UDP: u16 = 6;

pub const IPVS_INFO_ATTR_VERSION: u16 = 1;
pub const IPVS_INFO_ATTR_CONN_TAB_SIZE: u16 = 2;

pub const IPVS_SVC_ATTR_AF: u16 = 1;
pub const IPVS_SVC_ATTR_PROTOCOL: u16 = 2;
pub const IPVS_SVC_ATTR_ADDR: u16 = 3;
pub const IPVS_SVC_ATTR_PORT: u16 = 4;
pub const IPVS_SVC_ATTR_FWMARK: u16 = 5;
pub const IPVS_SVC_ATTR_SCHED_NAME: u16 = 6;
pub const IPVS_SVC_ATTR_FLAGS: u16 = 7;
pub const IPVS_SVC_ATTR_TIMEOUT: u16 = 8;
pub const IPVS_SVC_ATTR_NETMASK: u16 = 9;

pub const IPVS_DEST_ATTR_ADDR: u16 = 1;
pub const IPVS_DEST_ATTR_PORT: u16 = 2;
pub const IPVS_DEST_ATTR_FWD_METHOD: u16 = 3;
pub const IPVS_DEST_ATTR_WEIGHT: u16 = 4;
pub const IPVS_DEST_ATTR_U_THRESH: u16 = 5;
pub const IPVS_DEST_ATTR_L_THRESH: u16 = 6;
pub const IPVS_DEST_ATTR_ACTIVE_CONNS: u16 = 7;
pub const IPVS_DEST_ATTR_INACT_CONNS: u16 = 8;
pub const IPVS_DEST_ATTR_PERSIST_CONNS: u16 = 9;
pub const IPVS_DEST_ATTR_ADDR_FAMILY: u16 = 11;
pub const IPVS_DEST_ATTR_STATS64: u16 = 12;

pub const IPVS_STATS_ATTR_CONNS: u16 = 1;
pub const IPVS_STATS_ATTR_INPKTS: u16 = 2;
pub const IPVS_STATS_ATTR_OUTPKTS: u16 = 3;
pub const IPVS_STATS_ATTR_INBYTES: u16 = 4;
pub const IPVS_STATS_ATTR_OUTBYTES: u16 = 5;

pub const IPVS_DAEMON_ATTR_STATE: u16 = 1;
pub const IPVS_DAEMON_ATTR_MCAST_IFN: u16 = 2;
pub const IPVS_DAEMON_ATTR_SYNC_ID: u16 = 3;

pub const IP_VS_SVC_F_PERSISTENT: u32 = 0x1;
pub const IP_VS_SVC_F_ONEPACKET: u32 = 0x4;
pub const IP_VS_SVC_F_SCHED1: u32 = 0x8;
pub const IP_VS_SVC_F_SCHED2: u32 = 0x10;
pub const IP_VS_CONN_F_FWD_MASK: u32 = 0x7;
pub const IP_VS_CONN_F_MASQ: u32 = 0;
pub const IP_VS_CONN_F_LOCALNODE: u32 = 1;
pub const IP_VS_CONN_F_TUNNEL: u32 = 2;
pub const IP_VS_CONN_F_DROUTE: u32 = 3;
pub const IP_VS_CONN_F_BYPASS: u32 = 4;

pub const AF_INET: u8 = 2;
pub const AF_INET6: u8 = 10;

pub const NFNL_SUBSYS_IPSET: u16 = 6;
pub const IPSET_PROTOCOL: u8 = 6;
pub const IPSET_CMD_CREATE: u16 = 2;
pub const IPSET_CMD_DESTROY: u16 = 3;
pub const IPSET_CMD_LIST: u16 = 7;
pub const IPSET_CMD_ADD: u16 = 9;
pub const IPSET_CMD_DEL: u16 = 10;
pub const IPSET_ATTR_PROTOCOL: u16 = 1;
pub const IPSET_ATTR_SETNAME: u16 = 2;
pub const IPSET_ATTR_TYPENAME: u16 = 3;
pub const IPSET_ATTR_REVISION: u16 = 4;
pub const IPSET_ATTR_FAMILY: u16 = 5;
pub const IPSET_ATTR_FLAGS: u16 = 6;
pub const IPSET_ATTR_DATA: u16 = 7;
pub const IPSET_ATTR_ADT: u16 = 8;
pub const IPSET_ATTR_LINENO: u16 = 9;
pub const IPSET_ATTR_IP: u16 = 1;
pub const IPSET_ATTR_CIDR: u16 = 3;
pub const IPSET_ATTR_PORT: u16 = 4;
pub const IPSET_ATTR_PORT_TO: u16 = 5;
pub const IPSET_ATTR_PROTO: u16 = 7;
pub const IPSET_ATTR_HASHSIZE: u16 = 18;
pub const IPSET_ATTR_MAXELEM: u16 = 19;
pub const IPSET_ATTR_IP2: u16 = 20;
pub const IPSET_ATTR_CIDR2: u16 = 21;
pub const IPSET_ATTR_ELEMENTS: u16 = 24;
pub const IPSET_ATTR_REFERENCES: u16 = 25;
pub const IPSET_ATTR_IPADDR_IPV4: u16 = 1;
pub const IPSET_ATTR_IPADDR_IPV6: u16 = 2;
/// `IPSET_FLAG_LIST_HEADER`: list sets without their elements.
pub const IPSET_FLAG_LIST_HEADER: u32 = 4;
/// Error number of ipset when a hash set has reached its maximum number of elements (`IPSET_ERR_HASH_FULL`).
pub const IPSET_ERR_HASH_FULL: i32 = 4352;
