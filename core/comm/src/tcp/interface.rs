//! The address at which other nodes reach this process: `SCR_TCP_INTERFACE`.

use crate::{CommError, Result};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};

/// An address of this machine, and the name of its network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The interface.
    pub interface: String,
    /// The address.
    pub ip: IpAddr,
}

/// The address of this machine that others are to use. `wanted` is the name of an interface, such as `ib0`, or a range, such as
/// `10.1.0.0/16`. Without it, that of the host name counts, or else the first that is not a loopback; on a single node the
/// loopback, which no other machine reaches.
///
/// # Errors
/// There is none that was asked for, or they cannot be listed.
pub fn choose(wanted: Option<&str>, host: &str, is_alone: bool) -> Result<IpAddr> {
    let there = all()?;
    let Some(wanted) = wanted else {
        if is_alone {
            return Ok(Ipv4Addr::LOCALHOST.into());
        }
        let mut others =
            there.iter().map(|address| address.ip).filter(|ip| !ip.is_loopback() && ip.is_ipv4());
        // To ask for a name may take seconds, and is of use only where there is a choice.
        return Ok(match (others.next(), others.next()) {
            (Some(only), None) => only,
            _ => by_host(host, &there).or_else(|| first(&there)).unwrap_or(Ipv4Addr::LOCALHOST.into()),
        });
    };
    let range = Range::parse(wanted);
    let is_it = |address: &&Address| {
        address.interface == wanted || range.as_ref().is_some_and(|range| range.has(address.ip))
    };
    // An interface may have several addresses: the link-local ones of IPv6 need a scope.
    let found = there.iter().filter(is_it).min_by_key(|address| address.ip.is_ipv6());
    found.map(|address| address.ip).ok_or_else(|| {
        let there = there.iter().map(|address| format!("{} ({})", address.interface, address.ip));
        let there = there.collect::<Vec<_>>().join(", ");
        let what = format!(
            "SCR_TCP_INTERFACE={wanted} is neither a network interface of this node nor a range that one has an address in: there \
             are {there}"
        );
        CommError::Socket { what }
    })
}

/// The addresses of the interfaces that are up.
///
/// # Errors
/// They cannot be listed.
pub fn all() -> Result<Vec<Address>> {
    let unlisted = |error| format!("the network interfaces of this node cannot be listed: {error}");
    let listed = getifaddrs().map_err(|error| CommError::Socket { what: unlisted(error) })?;
    let address = |found: nix::ifaddrs::InterfaceAddress| {
        let storage = found.address.filter(|_| found.flags.contains(InterfaceFlags::IFF_UP))?;
        let v4 = storage.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
        let ip = v4.or_else(|| storage.as_sockaddr_in6().map(|address| address.ip().into()))?;
        Some(Address { interface: found.interface_name, ip })
    };
    let is_link_local = |ip| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    Ok(listed.filter_map(address).filter(|address| !is_link_local(address.ip)).collect())
}

fn by_host(host: &str, there: &[Address]) -> Option<IpAddr> {
    let known = (host, 0).to_socket_addrs().ok()?.map(|address| address.ip());
    known.filter(|ip| !ip.is_loopback()).find(|ip| there.iter().any(|address| address.ip == *ip))
}

fn first(there: &[Address]) -> Option<IpAddr> {
    let others = there.iter().map(|address| address.ip).filter(|ip| !ip.is_loopback());
    others.min_by_key(IpAddr::is_ipv6)
}

/// Addresses that begin with the same bits.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    start: IpAddr,
    bits: u32,
}

impl Range {
    fn parse(text: &str) -> Option<Self> {
        let (start, bits) = text.split_once('/').unwrap_or((text, ""));
        let start: IpAddr = start.parse().ok()?;
        let all = if start.is_ipv4() { 32 } else { 128 };
        let bits = if bits.is_empty() { all } else { bits.parse().ok()? };
        (bits <= all).then_some(Self { start, bits })
    }

    fn has(&self, ip: IpAddr) -> bool {
        let number = |ip| match ip {
            IpAddr::V4(ip) => (32, u128::from(ip.to_bits())),
            IpAddr::V6(ip) => (128, ip.to_bits()),
        };
        let ((all, start), (width, ip)) = (number(self.start), number(ip));
        let first = |number: u128| number.checked_shr(all - self.bits).unwrap_or(0);
        all == width && first(start) == first(ip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_a_range_or_not() {
        let has = |range: &str, ip: &str| Range::parse(range).map(|range| range.has(ip.parse().unwrap()));
        for (range, ip, expected) in [
            ("10.0.0.0/8", "10.200.3.4", Some(true)),
            ("10.0.0.0/8", "11.0.0.1", Some(false)),
            ("0.0.0.0/0", "11.0.0.1", Some(true)),
            ("10.1.2.3", "10.1.2.3", Some(true)),
            ("10.1.2.3/32", "10.1.2.4", Some(false)),
            ("fd00::/8", "fd12::1", Some(true)),
            ("::/0", "fd12::1", Some(true)),
            ("fd00::/8", "10.0.0.1", Some(false)),
            ("10.0.0.0/33", "10.0.0.1", None),
            ("ib0", "10.0.0.1", None),
        ] {
            assert_eq!(has(range, ip), expected, "{range} {ip}");
        }
    }

    #[test]
    fn the_loopback_is_found_by_its_name_and_its_range_and_others_are_named_in_the_error() {
        for wanted in ["lo", "127.0.0.0/8"] {
            assert_eq!(choose(Some(wanted), "nowhere", false), Ok(Ipv4Addr::LOCALHOST.into()));
        }
        assert_eq!(choose(None, "nowhere", true), Ok(Ipv4Addr::LOCALHOST.into()));
        let error = choose(Some("ib77"), "nowhere", false).unwrap_err().to_string();
        assert!(error.contains("SCR_TCP_INTERFACE=ib77") && error.contains("lo (127.0.0.1)"), "{error}");
    }
}
