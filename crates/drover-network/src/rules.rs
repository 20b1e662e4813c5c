//! Rules of `nf_tables`, one expression after the other: what packets are looked at, and what is done with them.
//!
//! A rule ends at the first comparison that does not hold. Numbers of registers, keys and hooks are those of
//! `linux/netfilter/nf_tables.h`.

use netlink_bindings::nftables::{
    CmpOps, CtKeys, MetaKeys, PayloadBase, PushExprListAttrs, PushRuleAttrs, Registers, VerdictCode,
};
use netlink_bindings::traits::Pusher;
use netlink_bindings::utils::{RequestBuf, push_header};

use crate::subnet::Subnet;

/// The longest name of a device, with its end.
const IFNAMSIZ: usize = 16;
/// The first three words of the first register.
const WORD_0: u32 = Registers::Reg3200 as u32;
const WORD_1: u32 = WORD_0 + 1;
const WORD_2: u32 = WORD_0 + 2;
const REG_1: u32 = Registers::Reg1 as u32;
/// Attributes of a look-up, as `linux/netfilter/nf_tables.h` numbers them. The description that `netlink-bindings` is
/// made from has them in another order (0.3.5).
const NFTA_LOOKUP_SREG: u16 = 2;
const NFTA_LOOKUP_DREG: u16 = 3;
/// `NFT_NAT_DNAT`.
const DESTINATION: u32 = 1;
/// `IPS_DST_NAT` of `linux/netfilter/nf_conntrack_common.h`: the destination was changed.
const IPS_DST_NAT: u32 = 1 << 5;
/// `NFPROTO_IPV4`.
const NFPROTO_IPV4: u32 = 2;
/// Where an IPv4 header has its addresses.
const SOURCE: u32 = 12;
const TARGET: u32 = 16;

/// A rule that is being written.
pub(crate) struct RuleText<P: Pusher>(PushExprListAttrs<P>);

/// A rule in a batch.
pub(crate) type BatchRule<'a> = RuleText<PushRuleAttrs<RequestBuf<'a>>>;

impl<P: Pusher> RuleText<P> {
    /// Over the expressions of a rule.
    pub(crate) fn new(expressions: PushExprListAttrs<P>) -> Self {
        Self(expressions)
    }

    /// Packets from these addresses.
    pub(crate) fn from(self, subnet: Subnet) -> Self {
        self.address(SOURCE, subnet.mask().octets(), subnet.network().octets())
    }

    /// Packets from the node to itself.
    pub(crate) fn sent_by_the_node_itself(self) -> Self {
        self.address(SOURCE, [255, 0, 0, 0], [127, 0, 0, 0])
    }

    /// Packets to the node's own loopback addresses.
    pub(crate) fn meant_for_loopback(self) -> Self {
        self.address(TARGET, [255, 0, 0, 0], [127, 0, 0, 0])
    }

    fn address(self, offset: u32, mask: [u8; 4], wanted: [u8; 4]) -> Self {
        self.payload(PayloadBase::NetworkHeader, (offset, 4), REG_1).masked(mask).compare(CmpOps::Eq, &wanted)
    }

    /// Packets that have come over a device.
    pub(crate) fn comes_over(self, device: &str) -> Self {
        self.meta(MetaKeys::Iifname, REG_1).compare(CmpOps::Eq, &name(device))
    }

    /// Packets that leave over a device.
    pub(crate) fn leaves_over(self, device: &str) -> Self {
        self.meta(MetaKeys::Oifname, REG_1).compare(CmpOps::Eq, &name(device))
    }

    /// Packets that leave over any other device.
    pub(crate) fn leaves_elsewhere_than(self, device: &str) -> Self {
        self.meta(MetaKeys::Oifname, REG_1).compare(CmpOps::Neq, &name(device))
    }

    /// Packets whose target was changed.
    pub(crate) fn was_redirected(self) -> Self {
        let Self(list) = self;
        let list = list
            .nested_elem()
            .nested_data_ct()
            .push_dreg(REG_1)
            .push_key(CtKeys::Status as u32)
            .end_nested()
            .end_nested();
        Self(list).masked(IPS_DST_NAT.to_ne_bytes()).compare(CmpOps::Neq, &[0; 4])
    }

    /// Looks target, protocol and port up in the map, and sends the packet where it says.
    pub(crate) fn redirect_by(self, map: &str) -> Self {
        let Self(list) = self
            .payload(PayloadBase::NetworkHeader, (TARGET, 4), WORD_0)
            .meta(MetaKeys::L4Proto, WORD_1)
            // TCP and UDP have the target's port in the same place; no other protocol is in the map.
            .payload(PayloadBase::TransportHeader, (2, 2), WORD_2);
        let mut lookup = list.nested_elem().nested_data_lookup().push_set_bytes(map.as_bytes());
        for attribute in [NFTA_LOOKUP_SREG, NFTA_LOOKUP_DREG] {
            push_header(lookup.as_vec_mut(), attribute, 4);
            lookup.as_vec_mut().extend(REG_1.to_be_bytes());
        }
        let list = lookup.end_nested().end_nested();
        Self(
            list.nested_elem()
                .nested_data_nat()
                .push_type(DESTINATION)
                .push_family(NFPROTO_IPV4)
                .push_reg_addr_min(WORD_0)
                .push_reg_proto_min(WORD_1)
                .end_nested()
                .end_nested(),
        )
    }

    /// The rule is written.
    pub(crate) fn end(self) {
        drop(self.0);
    }

    /// Gives the packet the node's own address of the device that it leaves over.
    pub(crate) fn masquerade(self) {
        drop(self.0.nested_elem().push_name(c"masq").end_nested());
    }

    /// Ends the packet.
    pub(crate) fn drop_packet(self) {
        let list = self
            .0
            .nested_elem()
            .nested_data_immediate()
            .push_dreg(Registers::RegVerdict as u32)
            .nested_data()
            .nested_verdict()
            .push_code(VerdictCode::Drop as u32)
            .end_nested()
            .end_nested()
            .end_nested()
            .end_nested();
        drop(list);
    }

    fn payload(self, base: PayloadBase, (offset, length): (u32, u32), register: u32) -> Self {
        Self(
            self.0
                .nested_elem()
                .nested_data_payload()
                .push_dreg(register)
                .push_base(base as u32)
                .push_offset(offset)
                .push_len(length)
                .end_nested()
                .end_nested(),
        )
    }

    fn meta(self, key: MetaKeys, register: u32) -> Self {
        Self(self.0.nested_elem().nested_data_meta().push_dreg(register).push_key(key as u32).end_nested().end_nested())
    }

    /// Keeps these bits of the first word.
    fn masked(self, mask: [u8; 4]) -> Self {
        Self(
            self.0
                .nested_elem()
                .nested_data_bitwise()
                .push_sreg(REG_1)
                .push_dreg(REG_1)
                .push_len(4)
                .nested_mask()
                .push_value(&mask)
                .end_nested()
                .nested_xor()
                .push_value(&[0; 4])
                .end_nested()
                .end_nested()
                .end_nested(),
        )
    }

    fn compare(self, operator: CmpOps, wanted: &[u8]) -> Self {
        Self(
            self.0
                .nested_elem()
                .nested_data_cmp()
                .push_sreg(REG_1)
                .push_op(operator as u32)
                .nested_data()
                .push_value(wanted)
                .end_nested()
                .end_nested()
                .end_nested(),
        )
    }
}

/// The name of a device as the kernel compares it.
fn name(device: &str) -> [u8; IFNAMSIZ] {
    let mut name = [0; IFNAMSIZ];
    for (to, from) in name.iter_mut().take(IFNAMSIZ - 1).zip(device.bytes()) {
        *to = from;
    }
    name
}
