//! Which process listens on a port, as far as Linux shows it to this user.

use std::fs;
use std::path::Path;

/// The state of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// The name and the number of the process that listens on a port; `None` if that cannot be seen.
pub(super) fn holder(port: u16) -> Option<String> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|table| {
        let table = fs::read_to_string(table).ok()?;
        table.lines().find_map(|line| inode(line, port).map(str::to_owned))
    })?;
    let socket = format!("socket:[{inode}]");
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let number = process.file_name();
        if !number
            .to_str()
            .is_some_and(|name| name.bytes().all(|digit| digit.is_ascii_digit()))
        {
            continue;
        }
        // Those of other users cannot be read.
        let Ok(files) = fs::read_dir(process.path().join("fd")) else {
            continue;
        };
        let mut targets = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
        if targets.any(|target| target == Path::new(&socket)) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(format!("`{}` (process {})", name.trim_end(), number.display()));
        }
    }
    None
}

/// The inode of the socket in a line of `/proc/net/tcp`, if it listens on the port.
fn inode(line: &str, port: u16) -> Option<&str> {
    let mut words = line.split_whitespace();
    let (_, local) = words.nth(1)?.rsplit_once(':')?;
    let is_it = u16::from_str_radix(local, 16).ok()? == port && words.nth(1)? == LISTEN;
    words.nth(5).filter(|_| is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_listening_socket_of_the_port_is_taken() {
        let line = "   0: 0100007F:1B9E 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1 0 100 0 0 10 0";
        assert_eq!(inode(line, 7070), Some("4242"));
        assert_eq!(inode(line, 7071), None);
        assert_eq!(inode(&line.replace(" 0A ", " 01 "), 7070), None);
        assert_eq!(inode("  sl  local_address rem_address   st", 7070), None);
    }
}
