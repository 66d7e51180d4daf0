//! Constants of the kernel's netfilter interface (`linux/netfilter/nf_tables.h`, `nfnetlink.h`), with the
//! kernel's names.

#![allow(missing_docs, reason = "the kernel's names, documented by the kernel")]

pub use crate::netlink::uapi::*;

pub const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
pub const NFNL_MSG_BATCH_END: u16 = 0x11;

const fn nft(message: u16) -> u16 {
    NFNL_SUBSYS_NFTABLES << 8 | message
}
pub const NFT_MSG_NEWTABLE: u16 = nft(0);
pub const NFT_MSG_GETTABLE: u16 = nft(1);
pub const NFT_MSG_DELTABLE: u16 = nft(2);
pub const NFT_MSG_NEWCHAIN: u16 = nft(3);
pub const NFT_MSG_GETCHAIN: u16 = nft(4);
pub const NFT_MSG_DELCHAIN: u16 = nft(5);
pub const NFT_MSG_NEWRULE: u16 = nft(6);
pub const NFT_MSG_GETRULE: u16 = nft(7);
pub const NFT_MSG_DELRULE: u16 = nft(8);
pub const NFT_MSG_NEWSET: u16 = nft(9);
pub const NFT_MSG_GETSET: u16 = nft(10);
pub const NFT_MSG_NEWSETELEM: u16 = nft(12);
pub const NFT_MSG_GETSETELEM: u16 = nft(13);
pub const NFT_MSG_DELSETELEM: u16 = nft(14);
pub const NFT_MSG_GETGEN: u16 = nft(16);

pub const NFTA_GEN_ID: u16 = 1;
pub const NFTA_TABLE_NAME: u16 = 1;
pub const NFTA_TABLE_FLAGS: u16 = 2;
pub const NFTA_CHAIN_TABLE: u16 = 1;
pub const NFTA_CHAIN_NAME: u16 = 3;
pub const NFTA_CHAIN_HOOK: u16 = 4;
pub const NFTA_CHAIN_POLICY: u16 = 5;
pub const NFTA_CHAIN_TYPE: u16 = 7;
pub const NFTA_HOOK_HOOKNUM: u16 = 1;
pub const NFTA_HOOK_PRIORITY: u16 = 2;
pub const NFTA_RULE_TABLE: u16 = 1;
pub const NFTA_RULE_CHAIN: u16 = 2;
pub const NFTA_RULE_HANDLE: u16 = 3;
pub const NFTA_RULE_EXPRESSIONS: u16 = 4;
pub const NFTA_LIST_ELEM: u16 = 1;
pub const NFTA_EXPR_NAME: u16 = 1;
pub const NFTA_EXPR_DATA: u16 = 2;
pub const NFTA_SET_TABLE: u16 = 1;
pub const NFTA_SET_NAME: u16 = 2;
pub const NFTA_SET_FLAGS: u16 = 3;
pub const NFTA_SET_KEY_TYPE: u16 = 4;
pub const NFTA_SET_KEY_LEN: u16 = 5;
pub const NFTA_SET_DATA_TYPE: u16 = 6;
pub const NFTA_SET_DATA_LEN: u16 = 7;
pub const NFTA_SET_DESC: u16 = 9;
pub const NFTA_SET_DESC_SIZE: u16 = 1;
pub const NFTA_SET_DESC_CONCAT: u16 = 2;
pub const NFTA_SET_FIELD_LEN: u16 = 1;
pub const NFTA_SET_ID: u16 = 10;
pub const NFTA_SET_EXPR: u16 = 17;
pub const NFTA_SET_USERDATA: u16 = 13;
pub const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
pub const NFTA_SET_ELEM_LIST_SET: u16 = 2;
pub const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
pub const NFTA_SET_ELEM_KEY: u16 = 1;
pub const NFTA_SET_ELEM_DATA: u16 = 2;
pub const NFTA_SET_ELEM_FLAGS: u16 = 3;
pub const NFTA_SET_ELEM_EXPR: u16 = 7;
pub const NFTA_SET_ELEM_KEY_END: u16 = 10;
pub const NFTA_COUNTER_PACKETS: u16 = 2;
pub const NFTA_DATA_VALUE: u16 = 1;
pub const NFTA_DATA_VERDICT: u16 = 2;
pub const NFTA_VERDICT_CODE: u16 = 1;
pub const NFTA_VERDICT_CHAIN: u16 = 2;
pub const NFT_SET_ELEM_INTERVAL_END: u32 = 1;
pub const NFT_SET_INTERVAL: u32 = 0x4;
pub const NFT_SET_MAP: u32 = 0x8;
pub const NFT_SET_TIMEOUT: u32 = 0x10;
pub const NFT_SET_EVAL: u32 = 0x20;
pub const NFT_SET_CONCAT: u32 = 0x80;
pub const NFT_DATA_VERDICT: u32 = 0xffff_ff00;
pub const NFT_JUMP: i32 = -3;
pub const NFT_GOTO: i32 = -4;
pub const NF_DROP: i32 = 0;
pub const NF_ACCEPT: u32 = 1;
pub const NF_INET_PRE_ROUTING: u32 = 0;
pub const NF_INET_LOCAL_IN: u32 = 1;
pub const NF_INET_FORWARD: u32 = 2;
pub const NF_INET_LOCAL_OUT: u32 = 3;
pub const NF_INET_POST_ROUTING: u32 = 4;
