//! Messages from a client after start-up, decoded with bounds checks.
//!
//! pgwire's own decoders read past a short body with a panic and replace bad UTF-8 silently; a
//! malformed message must be a protocol error (08P01, 22021) instead, so the few frontend messages
//! are decoded here. What goes to the client uses pgwire's message types.

use bytes::{Buf, Bytes};

use crate::error::{Error, Result, sqlstate};

/// What Describe and Close are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// `S`
    Statement,
    /// `P`
    Portal,
}

/// One message of a client.
#[derive(Debug, PartialEq)]
pub(super) enum FrontendMessage {
    Query(String),
    Parse {
        name: String,
        sql: String,
        type_oids: Vec<u32>,
    },
    Bind(Bind),
    Describe(Target, String),
    Execute {
        portal: String,
        /// 0: all
        row_limit: usize,
    },
    Close(Target, String),
    Flush,
    Sync,
    Terminate,
    CopyData(Bytes),
    CopyDone,
    CopyFail(String),
    Password(Bytes),
    FunctionCall,
}

/// A Bind message.
#[derive(Debug, PartialEq)]
pub(super) struct Bind {
    pub portal: String,
    pub statement: String,
    /// none, one for all, or one each
    pub parameter_formats: Vec<i16>,
    /// `None`: NULL
    pub parameters: Vec<Option<Bytes>>,
    /// none, one for all, or one each
    pub result_formats: Vec<i16>,
}

impl FrontendMessage {
    /// Decodes the body of the message of type `kind`.
    pub fn decode(kind: u8, body: Bytes) -> Result<Self> {
        let mut body = Body(body);
        let message = match kind {
            b'Q' => Self::Query(body.string()?),
            b'P' => Self::Parse {
                name: body.string()?,
                sql: body.string()?,
                type_oids: body.list(4, |b| b.get_u32())?,
            },
            b'B' => Self::Bind(Bind {
                portal: body.string()?,
                statement: body.string()?,
                parameter_formats: body.list(2, |b| b.get_i16())?,
                parameters: body.values()?,
                result_formats: body.list(2, |b| b.get_i16())?,
            }),
            b'D' => Self::Describe(body.target()?, body.string()?),
            b'C' => Self::Close(body.target()?, body.string()?),
            b'E' => Self::Execute {
                portal: body.string()?,
                row_limit: usize::try_from(body.i32()?).unwrap_or(0),
            },
            b'H' => Self::Flush,
            b'S' => Self::Sync,
            b'X' => Self::Terminate,
            b'd' => Self::CopyData(body.rest()),
            b'c' => Self::CopyDone,
            b'f' => Self::CopyFail(body.string()?),
            b'p' => Self::Password(body.rest()),
            b'F' => {
                body.rest();
                Self::FunctionCall
            }
            _ => {
                return Err(Error::new(
                    sqlstate::PROTOCOL_VIOLATION,
                    format!("invalid frontend message type {kind}"),
                ));
            }
        };
        match body.0.is_empty() {
            true => Ok(message),
            false => Err(malformed()),
        }
    }
}

fn malformed() -> Error {
    Error::new(sqlstate::PROTOCOL_VIOLATION, "invalid message format")
}

struct Body(Bytes);

impl Body {
    fn need(&self, bytes: usize) -> Result<()> {
        match self.0.len() >= bytes {
            true => Ok(()),
            false => Err(malformed()),
        }
    }

    fn string(&mut self) -> Result<String> {
        let end = self.0.iter().position(|b| *b == 0).ok_or_else(malformed)?;
        let text = self.0.split_to(end);
        self.0.advance(1);
        match std::str::from_utf8(&text) {
            Ok(text) => Ok(text.to_owned()),
            Err(e) => Err(crate::values::invalid_utf8(&text[e.valid_up_to()..])),
        }
    }

    fn i32(&mut self) -> Result<i32> {
        self.need(4)?;
        Ok(self.0.get_i32())
    }

    fn target(&mut self) -> Result<Target> {
        self.need(1)?;
        match self.0.get_u8() {
            b'S' => Ok(Target::Statement),
            b'P' => Ok(Target::Portal),
            _ => Err(malformed()),
        }
    }

    fn list<T>(&mut self, width: usize, read: impl Fn(&mut Bytes) -> T) -> Result<Vec<T>> {
        self.need(2)?;
        let count = usize::from(self.0.get_u16());
        self.need(count * width)?;
        Ok((0..count).map(|_| read(&mut self.0)).collect())
    }

    fn values(&mut self) -> Result<Vec<Option<Bytes>>> {
        self.need(2)?;
        let count = usize::from(self.0.get_u16());
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            values.push(match self.i32()? {
                -1 => None,
                length => {
                    let length = usize::try_from(length).map_err(|_| malformed())?;
                    self.need(length)?;
                    Some(self.0.split_to(length))
                }
            });
        }
        Ok(values)
    }

    fn rest(&mut self) -> Bytes {
        self.0.split_to(self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bind_is_decoded_with_nulls() {
        let body = b"p\0s\0\x00\x01\x00\x01\x00\x02\xff\xff\xff\xff\x00\x00\x00\x02ab\x00\x02\x00\x00\x00\x01";
        let message = FrontendMessage::decode(b'B', Bytes::from_static(body)).unwrap();
        assert_eq!(
            message,
            FrontendMessage::Bind(Bind {
                portal: "p".into(),
                statement: "s".into(),
                parameter_formats: vec![1],
                parameters: vec![None, Some(Bytes::from_static(b"ab"))],
                result_formats: vec![0, 1],
            })
        );
    }

    #[test]
    fn short_long_and_foreign_messages_are_protocol_errors() {
        for (kind, body) in [
            (b'B', &b"p\0s\0\x00\x05\x00"[..]),
            (b'B', b"p\0s\0\x00\x00\x00\x01\x00\x00\x00\x09ab"),
            (b'B', b"p\0s\0\x00\x00\x00\x01\xff\xff\xff\xfe\x00\x00"),
            (b'E', b"p\0\x00\x00"),
            (b'Q', b"select 1"),
            (b'Q', b"select 1\0extra"),
            (b'D', b"Xname\0"),
            (b'?', b""),
        ] {
            let error = FrontendMessage::decode(kind, Bytes::from_static(body)).unwrap_err();
            assert_eq!(error.sqlstate(), "08P01", "{kind} {body:?}");
        }
        let error = FrontendMessage::decode(b'Q', Bytes::from_static(b"a\xff\xfe\0")).unwrap_err();
        assert_eq!(error.sqlstate(), "22021");
    }
}
