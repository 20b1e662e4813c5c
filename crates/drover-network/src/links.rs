//! Network devices, addresses and routes of the calling thread's namespace, over rtnetlink.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd as _, BorrowedFd};

use netlink_bindings::rt_addr::{self, Ifaddrmsg};
use netlink_bindings::rt_link::{self, Ifinfomsg};
use netlink_bindings::rt_route::{self, Rtmsg};
use netlink_bindings::traits::Pusher as _;
use netlink_bindings::utils::{finalize_nested_header, push_header, push_nested_header};
use netlink_socket2::{NetlinkSocket, ReplyError};

use crate::network_error::NetworkError;

/// Attributes of `linux/if_link.h` that the description of the protocol lacks: those of the far end of a pair.
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_NET_NS_FD: u16 = 28;

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// The bridge that it is a port of.
    pub(crate) bridge: Option<u32>,
}

/// A pair of devices: one a port of a bridge, the other in a namespace.
#[derive(Debug)]
pub(crate) struct Pair<'a> {
    pub(crate) name: &'a str,
    pub(crate) bridge: u32,
    pub(crate) inside: &'a str,
    pub(crate) inside_mac: [u8; 6],
    pub(crate) namespace: BorrowedFd<'a>,
}

/// The devices of the namespace of the thread that has opened this.
pub(crate) struct Links(NetlinkSocket);

impl Links {
    /// Opens no socket before the first request.
    pub(crate) fn open() -> Self {
        Self(NetlinkSocket::new())
    }

    /// All devices.
    pub(crate) fn all(&mut self) -> Result<Vec<Link>, NetworkError> {
        let failed = |error: ReplyError| NetworkError(format!("listing network devices: {error}"));
        let request = rt_link::Request::new().op_getlink_dump(&Ifinfomsg::new());
        let mut replies = self.0.request(&request).map_err(|error| failed(error.into()))?;
        let mut links = Vec::new();
        while let Some((header, attributes)) = replies.recv().transpose().map_err(failed)? {
            let name = attributes.get_ifname().map_err(|error| failed(error.into()))?;
            links.push(Link {
                index: u32::try_from(header.ifi_index).unwrap_or_default(),
                name: name.to_string_lossy().into_owned(),
                bridge: attributes.get_master().ok(),
            });
        }
        Ok(links)
    }

    /// The device of this name.
    pub(crate) fn find(&mut self, name: &str) -> Result<Option<u32>, NetworkError> {
        let mut request = rt_link::Request::new().op_getlink_do(&Ifinfomsg::new());
        request.encode().push_ifname_bytes(name.as_bytes());
        let found = self.0.request(&request).map_err(ReplyError::from).and_then(|mut replies| {
            let (header, _) = replies.recv_one()?;
            Ok(u32::try_from(header.ifi_index).unwrap_or_default())
        });
        match found {
            Ok(index) => Ok(Some(index)),
            Err(error) if is(&error, libc::ENODEV) => Ok(None),
            Err(error) => Err(NetworkError(format!("looking for network device {name}: {error}"))),
        }
    }

    /// Makes a bridge.
    pub(crate) fn add_bridge(&mut self, name: &str, mac: [u8; 6]) -> Result<(), NetworkError> {
        let mut request = rt_link::Request::new().set_create().set_excl().op_newlink_do(&Ifinfomsg::new());
        request.encode().push_ifname_bytes(name.as_bytes()).push_address(&mac).nested_linkinfo().push_kind(c"bridge");
        self.acknowledged(&request).map_err(NetworkError::because(format_args!("making bridge {name}")))
    }

    /// Makes a pair of devices.
    pub(crate) fn add_pair(&mut self, pair: &Pair<'_>) -> Result<(), NetworkError> {
        let up = Ifinfomsg { ifi_flags: UP, ifi_change: UP, ..Ifinfomsg::new() };
        let mut request = rt_link::Request::new().set_create().set_excl().op_newlink_do(&up);
        let mut info = request
            .encode()
            .push_ifname_bytes(pair.name.as_bytes())
            .push_master(pair.bridge)
            .nested_linkinfo()
            .push_kind(c"veth");
        push_far_end(info.as_vec_mut(), pair);
        drop(info);
        self.acknowledged(&request).map_err(NetworkError::because(format_args!("making network device {}", pair.name)))
    }

    /// Lets a port of a bridge get back what came from it. Where bridged packets pass netfilter too, a network that
    /// asks for its own port of the node is answered by its own device, and no bridge does that by itself.
    pub(crate) fn reflect(&mut self, name: &str) -> Result<(), NetworkError> {
        let index = self.find(name)?.ok_or_else(|| NetworkError(format!("network device {name} has vanished")))?;
        let header = Ifinfomsg { ifi_index: i32::try_from(index).unwrap_or_default(), ..Ifinfomsg::new() };
        let mut request = rt_link::Request::new().op_newlink_do(&header);
        request.encode().nested_linkinfo().nested_slave_data_bridge().push_mode(1);
        self.acknowledged(&request).map_err(NetworkError::because(format_args!("setting network device {name}")))
    }

    /// Brings a device up.
    pub(crate) fn raise(&mut self, index: u32) -> Result<(), NetworkError> {
        let header = Ifinfomsg {
            ifi_index: i32::try_from(index).unwrap_or_default(),
            ifi_flags: UP,
            ifi_change: UP,
            ..Ifinfomsg::new()
        };
        let request = rt_link::Request::new().op_newlink_do(&header);
        self.acknowledged(&request).map_err(NetworkError::because("bringing a network device up"))
    }

    /// Brings the loopback device up.
    pub(crate) fn raise_loopback(&mut self) -> Result<(), NetworkError> {
        let index = self.find("lo")?.ok_or_else(|| NetworkError("there is no loopback device".to_owned()))?;
        self.raise(index)
    }

    /// Removes a device, and with it the other one of its pair. One that is not there is no error.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), NetworkError> {
        let mut request = rt_link::Request::new().op_dellink_do(&Ifinfomsg::new());
        request.encode().push_ifname_bytes(name.as_bytes());
        match self.acknowledged(&request) {
            Err(error) if !is(&error, libc::ENODEV) => {
                Err(NetworkError(format!("removing network device {name}: {error}")))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Gives a device an address, unless it has it.
    pub(crate) fn add_address(&mut self, index: u32, address: Ipv4Addr, prefix: u8) -> Result<(), NetworkError> {
        let header = Ifaddrmsg { ifa_family: IPV4, ifa_index: index, ifa_prefixlen: prefix, ..Ifaddrmsg::default() };
        let mut request = rt_addr::Request::new().set_change().op_newaddr_do(&header);
        let ip = IpAddr::V4(address);
        request.encode().push_local(ip).push_address(ip);
        self.acknowledged(&request).map_err(NetworkError::because(format_args!("giving a device address {address}")))
    }

    /// The first address of version 4 of a device.
    pub(crate) fn address_of(&mut self, name: &str) -> Result<Option<Ipv4Addr>, NetworkError> {
        let Some(index) = self.find(name)? else { return Ok(None) };
        let failed = |error: ReplyError| NetworkError(format!("listing addresses: {error}"));
        let all = Ifaddrmsg { ifa_family: IPV4, ..Ifaddrmsg::default() };
        let request = rt_addr::Request::new().op_getaddr_dump(&all);
        let mut replies = self.0.request(&request).map_err(|error| failed(error.into()))?;
        let mut found = None;
        while let Some((header, attributes)) = replies.recv().transpose().map_err(failed)? {
            if let (true, Ok(IpAddr::V4(address))) = (header.ifa_index == index, attributes.get_local()) {
                found = found.or(Some(address));
            }
        }
        Ok(found)
    }

    /// Sends everything else over this gateway.
    pub(crate) fn add_default_route(&mut self, gateway: Ipv4Addr) -> Result<(), NetworkError> {
        let header = Rtmsg {
            rtm_family: IPV4,
            rtm_table: libc::RT_TABLE_MAIN,
            rtm_protocol: libc::RTPROT_STATIC,
            rtm_scope: libc::RT_SCOPE_UNIVERSE,
            rtm_type: libc::RTN_UNICAST,
            ..Rtmsg::default()
        };
        let mut request = rt_route::Request::new().set_change().op_newroute_do(&header);
        request.encode().push_gateway(IpAddr::V4(gateway));
        self.acknowledged(&request).map_err(NetworkError::because(format_args!("making the route over {gateway}")))
    }

    fn acknowledged<R: netlink_bindings::traits::NetlinkRequest>(&mut self, request: &R) -> Result<(), ReplyError> {
        self.0.request(request)?.recv_ack()
    }
}

/// `IFF_UP` of linux/if.h.
const UP: u32 = 1;
/// `AF_INET`.
pub(crate) const IPV4: u8 = 2;

/// Whether the kernel answered with this error.
pub(crate) fn is(error: &ReplyError, number: i32) -> bool {
    error.as_io_error().raw_os_error() == Some(number)
}

/// The device within the namespace, as the pair's own attributes name it.
fn push_far_end(buffer: &mut Vec<u8>, pair: &Pair<'_>) {
    let data = push_nested_header(buffer, IFLA_INFO_DATA);
    let peer = push_nested_header(buffer, VETH_INFO_PEER);
    // The header of a device: nothing of it is given.
    buffer.extend([0; 16]);
    let name: Vec<u8> = pair.inside.bytes().chain([0]).collect();
    let namespace = u32::try_from(pair.namespace.as_raw_fd()).unwrap_or_default().to_ne_bytes();
    for (attribute, value) in [(IFLA_IFNAME, &name[..]), (IFLA_ADDRESS, &pair.inside_mac), (IFLA_NET_NS_FD, &namespace)]
    {
        push_header(buffer, attribute, u16::try_from(value.len()).unwrap_or_default());
        buffer.extend(value);
    }
    finalize_nested_header(buffer, peer);
    finalize_nested_header(buffer, data);
}
