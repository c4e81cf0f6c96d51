//! From the first byte to the first ReadyForQuery.
//!
//! A TLS request is granted where the server has a certificate, a GSS request is answered with "no", a
//! CancelRequest is carried out and the connection ends, a StartupMessage is negotiated down to
//! protocol 3.2. What a client must show is [`Gate`]'s to say; [`authenticate`] asks for it.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes};
use pgwire::api::auth::sasl::scram::ScramServerAuth;
use pgwire::messages::PgWireBackendMessage as Message;
use pgwire::messages::startup::{Authentication, NegotiateProtocolVersion};
use tokio::io::{AsyncRead, AsyncWrite};

use super::gate::{Demand, Gate, Peer};
use super::scram;
use super::wire::{Failure, Wire, WireResult};
use crate::catalog::pg_catalog::backends::Backends;
use crate::error::{Error, sqlstate};

const PACKET_MAX_BYTES: usize = 10_000;
const SSL_REQUEST: i32 = 80_877_103;
const GSS_REQUEST: i32 = 80_877_104;
const CANCEL_REQUEST: i32 = 80_877_102;
const NEWEST_MINOR: i32 = 2;

/// What a client said at the start.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Startup {
    /// `user`
    pub user: String,
    /// `database`; the user's name when it was not said
    pub database: String,
    /// the other parameters, those of `options` included, in the order to apply
    pub parameters: Vec<(String, String)>,
    /// minor protocol version in use
    pub minor_version: i32,
}

/// How a start went on.
pub(super) enum Negotiated {
    /// a session is wanted
    Session(Startup),
    /// TLS was asked for and granted: it begins with the next byte
    Encrypt,
    /// it only came to cancel
    Cancelled,
}

/// Reads packets until the client starts a session, or TLS if `offers_tls`.
pub(super) async fn negotiate<R, W>(
    wire: &mut Wire<R, W>,
    backends: &Backends,
    offers_tls: bool,
) -> WireResult<Negotiated>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    loop {
        let mut packet = wire.startup_packet(PACKET_MAX_BYTES).await?;
        match packet.get_i32() {
            SSL_REQUEST if offers_tls => {
                if wire.has_unread() {
                    // Sent in the clear, it would be taken for what came encrypted.
                    return Err(Failure::Fatal(
                        Error::new(
                            sqlstate::PROTOCOL_VIOLATION,
                            "received unencrypted data after SSL request",
                        )
                        .detail("This could be either a client-software bug or evidence of an attempted man-in-the-middle attack."),
                    ));
                }
                wire.output.extend_from_slice(b"S");
                wire.flush().await?;
                return Ok(Negotiated::Encrypt);
            }
            SSL_REQUEST | GSS_REQUEST => {
                wire.output.extend_from_slice(b"N");
                wire.flush().await?;
            }
            CANCEL_REQUEST => {
                if packet.len() >= 4 {
                    let pid = packet.get_i32();
                    backends.cancel_with_secret(pid, &packet);
                }
                return Ok(Negotiated::Cancelled);
            }
            version => {
                let (startup, unknown) = parse_startup(version, packet).map_err(Failure::Fatal)?;
                if version & 0xffff > NEWEST_MINOR || !unknown.is_empty() {
                    wire.put(Message::NegotiateProtocolVersion(
                        NegotiateProtocolVersion::new(3 << 16 | NEWEST_MINOR, unknown),
                    ))?;
                }
                return Ok(Negotiated::Session(startup));
            }
        }
    }
}

/// Lets a user in, or not.
pub(super) async fn authenticate<R, W>(
    wire: &mut Wire<R, W>,
    gate: &Gate,
    peer: &Peer,
    binding: Option<&ScramServerAuth>,
    user: &str,
) -> WireResult<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    match gate.demand(peer, user).map_err(Failure::Fatal)? {
        Demand::Trust | Demand::Certificate => {}
        Demand::Password => scram::exchange(wire, gate, peer, binding, user).await?,
    }
    gate.check_user(user).map_err(Failure::Fatal)?;
    wire.put(Message::Authentication(Authentication::Ok))
}

/// The session's parameters and the protocol options that are not known.
fn parse_startup(version: i32, mut packet: Bytes) -> Result<(Startup, Vec<String>), Error> {
    let (major, minor) = (version >> 16, version & 0xffff);
    if major != 3 {
        return Err(Error::new(
            sqlstate::FEATURE_NOT_SUPPORTED,
            format!(
                "unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.{NEWEST_MINOR}"
            ),
        ));
    }
    let mut given = BTreeMap::new();
    let mut order = Vec::new();
    while let Some(name) = cstring(&mut packet)?.filter(|name| !name.is_empty()) {
        let value = cstring(&mut packet)?.unwrap_or_default();
        order.push(name.clone());
        given.insert(name, value);
    }
    let (unknown, order): (Vec<_>, Vec<_>) = order
        .into_iter()
        .partition(|name| name.starts_with("_pq_."));
    let user = given
        .remove("user")
        .filter(|user| !user.is_empty())
        .ok_or_else(|| {
            Error::new(
                sqlstate::INVALID_AUTHORIZATION,
                "no PostgreSQL user name specified in startup packet",
            )
        })?;
    let database = given
        .remove("database")
        .filter(|database| !database.is_empty())
        .unwrap_or_else(|| user.clone());
    let mut parameters = match given.remove("options") {
        Some(options) => parse_options(&options)?,
        None => Vec::new(),
    };
    for name in order {
        match (name.as_str(), given.remove(&name)) {
            ("replication", Some(value)) if !is_off(&value) => {
                return Err(Error::unsupported(
                    "replication connections are not supported",
                ));
            }
            ("replication", _) | (_, None) => {}
            (_, Some(value)) => parameters.push((name, value)),
        }
    }
    let startup = Startup {
        user,
        database,
        parameters,
        minor_version: minor.min(NEWEST_MINOR),
    };
    Ok((startup, unknown))
}

fn is_off(value: &str) -> bool {
    matches!(
        value.to_ascii_lowercase().as_str(),
        "0" | "false" | "off" | "no" | ""
    )
}

/// `-c name=value`, `-cname=value` and `--name=value`; a backslash keeps the next character.
fn parse_options(options: &str) -> Result<Vec<(String, String)>, Error> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = options.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => word.get_or_insert_default().extend(characters.next()),
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    let mut parameters = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let setting = match word.as_str() {
            "-c" | "--" => words.next(),
            other => other
                .strip_prefix("--")
                .or_else(|| other.strip_prefix("-c"))
                .map(str::to_owned),
        };
        let (name, value) = setting
            .as_deref()
            .and_then(|setting| setting.split_once('='))
            .ok_or_else(|| {
                Error::new(
                    sqlstate::INVALID_PARAMETER_VALUE,
                    format!("invalid command-line argument for server process: {word}"),
                )
                .hint("Write options as \"-c name=value\".")
            })?;
        parameters.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(parameters)
}

fn cstring(packet: &mut Bytes) -> Result<Option<String>, Error> {
    let Some(end) = packet.iter().position(|b| *b == 0) else {
        return Ok(None);
    };
    let text = packet.split_to(end);
    packet.advance(1);
    String::from_utf8(text.to_vec())
        .map(Some)
        .map_err(|e| crate::values::invalid_utf8(e.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_parameters_are_read() {
        let packet = b"user\0ada\0options\0-c search_path=a\\ b -cTimeZone=UTC --statement-timeout=5s\0application_name\0x\0_pq_.foo\x001\0\0";
        let (startup, unknown) = parse_startup(3 << 16 | 9, Bytes::from_static(packet)).unwrap();
        assert_eq!(startup.database, "ada");
        assert_eq!(startup.minor_version, 2);
        assert_eq!(unknown, ["_pq_.foo"]);
        let expected = [
            ("search_path", "a b"),
            ("TimeZone", "UTC"),
            ("statement_timeout", "5s"),
            ("application_name", "x"),
        ];
        assert_eq!(
            startup.parameters,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn bad_starts_are_refused() {
        for (version, packet, code) in [
            (2 << 16, &b"user\0ada\0\0"[..], "0A000"),
            (3 << 16, b"database\0d\0\0", "28000"),
            (3 << 16, b"user\0ada\0replication\0true\0\0", "0A000"),
            (3 << 16, b"user\0ada\0options\0-x\0\0", "22023"),
            (3 << 16, b"user\0a\xff\0\0", "22021"),
        ] {
            let error = parse_startup(version, Bytes::from_static(packet)).unwrap_err();
            assert_eq!(error.sqlstate(), code);
        }
    }
}
