//! The exchange of SCRAM-SHA-256 and SCRAM-SHA-256-PLUS with a client.
//!
//! The mechanism's arithmetic is pgwire's; here are its messages, and what pgwire leaves open: the
//! mechanism that a client chose and the channel binding that it speaks of must agree, or somebody in
//! between could take one away.

use bytes::{Buf, Bytes};
use pgwire::api::auth::sasl::scram::ScramServerAuth;
use pgwire::error::PgWireError;
use pgwire::messages::PgWireBackendMessage as Message;
use pgwire::messages::startup::Authentication;
use tokio::io::{AsyncRead, AsyncWrite};

use super::frontend::FrontendMessage;
use super::gate::{Gate, Peer};
use super::wire::{Failure, Wire, WireResult};
use crate::error::{Error, sqlstate};

const PLAIN: &str = "SCRAM-SHA-256";
const BOUND: &str = "SCRAM-SHA-256-PLUS";

/// Asks for a password and checks it.
pub(super) async fn exchange<R, W>(
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
    let mechanisms = match binding {
        Some(_) => vec![BOUND.to_owned(), PLAIN.to_owned()],
        None => vec![PLAIN.to_owned()],
    };
    wire.put(Message::Authentication(Authentication::SASL(mechanisms)))?;
    let (mechanism, first) = initial_response(password_message(wire).await?)?;
    check_agreement(&mechanism, &first, binding.is_some()).map_err(Failure::Fatal)?;
    let server = binding.cloned().unwrap_or_default();
    let (answer, waiting) = server
        .on_client_first_message_with_secret(&first, gate.secret(user))
        .map_err(malformed)?;
    wire.put(Message::Authentication(Authentication::SASLContinue(
        answer.into(),
    )))?;
    let last = password_message(wire).await?;
    let address = peer.address.ip();
    gate.admit(address, user).map_err(Failure::Fatal)?;
    match waiting.on_client_final_message(&last) {
        Ok(answer) => {
            gate.passed(address, user);
            wire.put(Message::Authentication(Authentication::SASLFinal(
                answer.into(),
            )))
        }
        Err(PgWireError::InvalidPassword(_)) => Err(Failure::Fatal(gate.fail(address, user).await)),
        Err(other) => Err(malformed(other)),
    }
}

/// The client's next message, which must be one of a log-in.
async fn password_message<R, W>(wire: &mut Wire<R, W>) -> WireResult<Bytes>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    match wire.next(None).await {
        Ok(FrontendMessage::Password(body)) => Ok(body),
        Ok(FrontendMessage::Terminate) => Err(Failure::Gone),
        Ok(_) => Err(Failure::Fatal(Error::new(
            sqlstate::PROTOCOL_VIOLATION,
            "expected SASL response",
        ))),
        Err(Failure::Statement(error)) => Err(Failure::Fatal(error)),
        Err(other) => Err(other),
    }
}

/// Mechanism and first message of a SASLInitialResponse.
fn initial_response(mut body: Bytes) -> WireResult<(String, Bytes)> {
    let invalid = || Failure::Fatal(protocol_error());
    let end = body.iter().position(|b| *b == 0).ok_or_else(invalid)?;
    let name = body.split_to(end);
    body.advance(1);
    let name = String::from_utf8(name.to_vec()).map_err(|_| invalid())?;
    if body.len() < 4 {
        return Err(invalid());
    }
    match usize::try_from(body.get_i32()) {
        Ok(length) if length == body.len() => Ok((name, body)),
        _ => Err(invalid()),
    }
}

/// What was chosen, what is bound to, and what was offered are one.
fn check_agreement(mechanism: &str, first: &[u8], is_bound: bool) -> Result<(), Error> {
    let binds = first.starts_with(b"p=");
    match mechanism {
        PLAIN if !binds => Ok(()),
        BOUND if is_bound && binds => Ok(()),
        PLAIN | BOUND if is_bound || mechanism == PLAIN => Err(protocol_error().detail(
            "The mechanism and the channel binding that were chosen do not belong together.",
        )),
        _ => Err(Error::new(
            sqlstate::PROTOCOL_VIOLATION,
            "client selected an invalid SASL authentication mechanism",
        )),
    }
}

fn protocol_error() -> Error {
    Error::new(sqlstate::PROTOCOL_VIOLATION, "malformed SCRAM message")
}

fn malformed(error: PgWireError) -> Failure {
    tracing::debug!(%error, "a log-in was broken off");
    let text = error.to_string();
    Failure::Fatal(if text.contains("hannel binding") {
        Error::new(
            sqlstate::INVALID_AUTHORIZATION,
            "SCRAM channel binding check failed",
        )
    } else {
        protocol_error()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mechanism_and_binding_must_agree() {
        let bound = &b"p=tls-server-end-point,,n=,r=x"[..];
        let plain = &b"n,,n=,r=x"[..];
        for (mechanism, first, is_bound, is_good) in [
            (PLAIN, plain, false, true),
            (PLAIN, plain, true, true),
            (BOUND, bound, true, true),
            (BOUND, plain, true, false),
            (PLAIN, bound, true, false),
            (BOUND, bound, false, false),
            ("MD5", plain, true, false),
        ] {
            let checked = check_agreement(mechanism, first, is_bound);
            assert_eq!(checked.is_ok(), is_good, "{mechanism} {is_bound}");
        }
    }

    #[test]
    fn an_initial_response_is_read_within_its_bounds() {
        let body = |text: &'static [u8]| initial_response(Bytes::from_static(text));
        let (name, first) = body(b"SCRAM-SHA-256\0\0\0\0\x02n,").unwrap();
        assert_eq!((name.as_str(), &first[..]), (PLAIN, &b"n,"[..]));
        for bad in [
            &b""[..],
            b"SCRAM",
            b"SCRAM\0\0\0",
            b"SCRAM\0\0\0\0\x09n,",
            b"SCRAM\0\xff\xff\xff\xff",
            b"\xff\0\0\0\0\0",
        ] {
            assert!(body(bad).is_err(), "{bad:?}");
        }
    }
}
