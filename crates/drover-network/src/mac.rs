//! Names and hardware addresses of devices: derived, so that the same network has the same ones again, and neighbours
//! that remember an address do not send to a device that has gone.

use std::net::Ipv4Addr;

use sha2::{Digest as _, Sha256};

/// The first letters of the names of our devices.
pub(crate) const DEVICE_PREFIX: &str = "drv";

/// Hexadecimal digits after them: a name has at most 15 bytes.
const DIGITS: usize = 11;

/// The name of a network's device on the bridge.
pub(crate) fn device(id: &str) -> String {
    let digest = Sha256::digest(id.as_bytes());
    let digits: String = digest.iter().flat_map(|byte| [byte >> 4, byte & 15]).take(DIGITS).map(digit).collect();
    format!("{DEVICE_PREFIX}{digits}")
}

fn digit(value: u8) -> char {
    char::from_digit(u32::from(value), 16).unwrap_or('0')
}

/// The hardware address of the device with this address; locally administered.
pub(crate) fn of_address(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    [0x0a, 0x58, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices_fit_and_differ() {
        let (one, two) = (device("uid-1"), device("uid-2"));
        assert_eq!((one.len(), two.len(), one == two), (14, 14, false));
        assert!(one[3..].bytes().all(|byte| byte.is_ascii_hexdigit()), "{one}");
        assert_eq!(of_address(Ipv4Addr::new(172, 26, 64, 2)), [0x0a, 0x58, 172, 26, 64, 2]);
    }
}
