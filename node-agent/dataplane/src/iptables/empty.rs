//! Removal of empty nft tables: the iptables tools of the nft flavor create them but never remove them.

use std::io;

use kernel::netlink::{
    socket::Netlink,
    uapi,
    wire::{Attributes, Message, netfilter_header},
};
use model::primitives::net::IpFamily;

use super::layout::IptablesTable;

const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
const NFNL_MSG_BATCH_END: u16 = 0x11;
const NFNL_BATCH_GENID: u16 = 1;
const NFT_MSG_DELTABLE: u16 = uapi::NFNL_SUBSYS_NFTABLES << 8 | 2;
const NFTA_TABLE_NAME: u16 = 1;

/// Removes a table that was empty at a given ruleset generation. The kernel rejects the removal if anything
/// has changed since.
pub(super) fn remove(
    netlink: &mut Netlink,
    family: IpFamily,
    table: IptablesTable,
    generation: u32,
) -> io::Result<()> {
    let family = match family {
        IpFamily::V4 => uapi::NFPROTO_IPV4,
        IpFamily::V6 => uapi::NFPROTO_IPV6,
    };
    let bracket = |kind, attributes| Message {
        kind,
        flags: uapi::NLM_F_REQUEST,
        header: netfilter_header(0, uapi::NFNL_SUBSYS_NFTABLES),
        attributes,
    };
    let delete = Message {
        kind: NFT_MSG_DELTABLE,
        flags: uapi::NLM_F_REQUEST | uapi::NLM_F_ACK,
        header: netfilter_header(family, 0),
        attributes: Attributes::default().text(NFTA_TABLE_NAME, table.as_str()),
    };
    let mut batch = Vec::new();
    let begin = Attributes::default().be32(NFNL_BATCH_GENID, generation);
    let first = netlink.next_sequence();
    bracket(NFNL_MSG_BATCH_BEGIN, begin).encode_into(first, &mut batch);
    let last = netlink.next_sequence();
    delete.encode_into(last, &mut batch);
    bracket(NFNL_MSG_BATCH_END, Attributes::default()).encode_into(netlink.next_sequence(), &mut batch);
    netlink.send(&batch)?;
    let mut errno = 0;
    netlink.receive(|answer| {
        if answer.kind != uapi::NLMSG_ERROR || ![first, last].contains(&answer.sequence) {
            return Ok(false);
        }
        errno = answer.errno();
        Ok(true)
    })?;
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}
