//! Connections as they arrive, and from where: a proxy in front may say so in a header of the PROXY protocol (HAProxy, versions 1 and
//! 2), so that limits by address see the client.

use std::io::{self, Error, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use ppp::{HeaderResult, v1, v2};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Time for a header: a proxy sends it at once.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest header, in bytes: one of version 2 with what a proxy may add.
const MAX_HEADER: usize = 2048;
/// How a header begins: both versions have at least so many bytes.
const V2: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const V1: &[u8] = b"PROXY ";

#[derive(Debug)]
pub(crate) struct Arrivals {
    listener: TcpListener,
    reading: JoinSet<io::Result<(TcpStream, SocketAddr)>>,
}

impl Arrivals {
    pub(crate) fn new(listener: TcpListener) -> Self {
        let reading = JoinSet::new();
        Self { listener, reading }
    }

    /// The next connection, and the address of the client. `proxied`: whether each begins with a header; `most`: headers that are
    /// read at once, at most. May be dropped and called again.
    pub(crate) async fn next(&mut self, proxied: bool, most: usize) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            tokio::select! {
                accepted = self.listener.accept() => {
                    let (io, from) = accepted?;
                    if !proxied {
                        return Ok((io, from));
                    }
                    if self.reading.len() < most {
                        self.reading.spawn(in_time(io, from));
                    }
                }
                Some(read) = self.reading.join_next() => match read {
                    Ok(Ok(arrived)) => return Ok(arrived),
                    Ok(Err(error)) => tracing::warn!(%error, "a connection was closed: `proxy_protocol = true` in server.toml asks \
                         for a header of the PROXY protocol"),
                    Err(_) => {}
                }
            }
        }
    }
}

async fn in_time(mut io: TcpStream, from: SocketAddr) -> io::Result<(TcpStream, SocketAddr)> {
    let read = tokio::time::timeout(HEADER_TIMEOUT, header(&mut io));
    let client = read
        .await
        .map_err(|_| Error::new(ErrorKind::TimedOut, format!("{from} sent none")))??;
    Ok((io, client.unwrap_or(from)))
}

/// Reads a header. `None`: the proxy speaks for itself, or does not know the client.
async fn header(io: &mut (impl tokio::io::AsyncRead + Unpin)) -> io::Result<Option<SocketAddr>> {
    let mut bytes = vec![0; V2.len()];
    io.read_exact(&mut bytes).await?;
    if bytes == V2 {
        bytes.resize(16, 0);
        io.read_exact(&mut bytes[12..]).await?;
        let len = usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
        if len > MAX_HEADER {
            return Err(Error::other(format!("a header of {len} bytes")));
        }
        bytes.resize(16 + len, 0);
        io.read_exact(&mut bytes[16..]).await?;
    } else if bytes.starts_with(V1) {
        while !bytes.ends_with(b"\r\n") && bytes.len() < MAX_HEADER {
            bytes.push(io.read_u8().await?);
        }
    }
    match HeaderResult::parse(&bytes) {
        HeaderResult::V1(Ok(header)) => Ok(match header.addresses {
            v1::Addresses::Tcp4(a) => Some((a.source_address, a.source_port).into()),
            v1::Addresses::Tcp6(a) => Some((a.source_address, a.source_port).into()),
            v1::Addresses::Unknown => None,
        }),
        HeaderResult::V2(Ok(header)) => Ok(match (header.command, header.addresses) {
            (v2::Command::Proxy, v2::Addresses::IPv4(a)) => Some((a.source_address, a.source_port).into()),
            (v2::Command::Proxy, v2::Addresses::IPv6(a)) => Some((a.source_address, a.source_port).into()),
            _ => None,
        }),
        _ => Err(Error::other("the bytes are none")),
    }
}

/// Whether a connection begins with such a header, which nobody asked for.
pub(super) async fn is_proxied(io: &TcpStream) -> bool {
    let mut begin = [0; V2.len()];
    let len = io.peek(&mut begin).await.unwrap_or(0);
    begin[..len].starts_with(V1) || (len > 0 && V2.starts_with(&begin[..len]))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(bytes: &[u8]) -> Result<(Option<SocketAddr>, usize), String> {
        let mut rest = bytes;
        let found = header(&mut rest).await.map_err(|error| error.to_string())?;
        Ok((found, rest.len()))
    }

    #[tokio::test]
    async fn both_versions_name_the_client_and_leave_what_follows() {
        let client: SocketAddr = "203.0.113.7:56324".parse().unwrap();
        let six: SocketAddr = "[2001:db8::7]:99".parse().unwrap();
        let v1 = |line: &str| format!("PROXY {line}\r\nHELLO").into_bytes();
        // AF_INET and STREAM, 12 bytes of addresses; then what a proxy may add.
        let v2 = |command: u8, more: &[u8]| {
            let mut bytes = [V2, &[0x20 | command, 0x11][..]].concat();
            bytes.extend((12 + more.len() as u16).to_be_bytes());
            bytes.extend([203, 0, 113, 7, 10, 0, 0, 1, 0xdc, 0x04, 0x1b, 0x9e]);
            [&bytes, more, b"HELLO"].concat()
        };
        for (bytes, expected) in [
            (v1("TCP4 203.0.113.7 10.0.0.1 56324 7070"), Some(client)),
            (v1("TCP6 2001:db8::7 2001:db8::1 99 7070"), Some(six)),
            (v1("UNKNOWN"), None),
            (v2(1, &[]), Some(client)),
            (v2(1, &[4, 0, 2, 7, 7]), Some(client)),
            (v2(0, &[]), None),
        ] {
            assert_eq!(read(&bytes).await, Ok((expected, 5)), "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn anything_else_is_refused_and_bounded() {
        for bytes in [
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00".to_vec(),
            b"PROXY TCP4 one two 3 4\r\n".to_vec(),
            [&b"PROXY TCP4 "[..], &[b'1'; 100_000]].concat(),
            [V2, &[0x21, 0x11, 0xff, 0xff][..], &[0; 100_000]].concat(),
            b"PROXY TCP4 1".to_vec(),
            Vec::new(),
        ] {
            assert!(read(&bytes).await.is_err(), "{:?}", &bytes[..bytes.len().min(20)]);
        }
    }
}
