//! The one error type at the surface, in PostgreSQL's form.
//!
//! SQLSTATE, a primary line in lower case without a full stop, DETAIL and HINT as sentences; the
//! hint holds the statement that helps. [`ErrorKind`] says what the caller must do, so that no
//! code branches on text. "could not" if a retry may succeed, "cannot" if not.
//! Conversions from the libraries' errors live in [`mapping`]; no library's type name may reach a
//! user.

pub mod mapping;
pub mod sqlstate;

use std::fmt;

/// Result with the surface error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller must do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The statement or its input is wrong: report it to who sent it.
    User,
    /// May go away by itself (network, full disk): retry with back-off.
    Transient,
    /// Stored bytes are missing, foreign, older or damaged: stop, touch nothing, name the repair.
    Damaged,
    /// Another writer took over this location: stop writing.
    Fenced,
    /// A cancel request, a time-out or a shutdown ended it.
    Cancelled,
    /// A broken invariant of our own.
    Internal,
}

/// An error as a client sees it.
#[derive(Clone)]
pub struct Error(Box<ErrorBody>);

#[derive(Clone)]
struct ErrorBody {
    kind: ErrorKind,
    sqlstate: &'static str,
    primary: String,
    detail: Option<String>,
    hint: Option<String>,
    position: Option<usize>,
    subject: Option<Subject>,
    routine: Option<&'static str>,
}

/// What of a relation an error is about, for drivers that tell errors apart by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Relation.
    pub table: String,
    /// Column, for NOT NULL.
    pub column: Option<String>,
    /// Constraint, such as `t_pkey`.
    pub constraint: Option<String>,
}

impl Subject {
    /// A column of a relation.
    pub fn column(table: &str, column: &str) -> Self {
        Self {
            table: table.to_owned(),
            column: Some(column.to_owned()),
            constraint: None,
        }
    }

    /// A constraint of a relation.
    pub fn constraint(table: &str, constraint: &str) -> Self {
        Self {
            table: table.to_owned(),
            column: None,
            constraint: Some(constraint.to_owned()),
        }
    }
}

/// A number of things, in words for people: `1 file`, `2 files`, `3 batches`.
pub fn counted(number: u64, thing: &str) -> String {
    let ending = match thing {
        _ if number == 1 => "",
        _ if thing.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{number} {thing}{ending}")
}

impl Error {
    /// A user's error with its SQLSTATE (five characters, see [`sqlstate`]).
    pub fn new(sqlstate: &'static str, primary: impl Into<String>) -> Self {
        Self::with_kind(ErrorKind::User, sqlstate, primary)
    }

    /// An error of a given kind.
    pub fn with_kind(kind: ErrorKind, sqlstate: &'static str, primary: impl Into<String>) -> Self {
        Self(Box::new(ErrorBody {
            kind,
            sqlstate,
            primary: primary.into(),
            detail: None,
            hint: None,
            position: None,
            subject: None,
            routine: None,
        }))
    }

    /// An error that a retry may mend; SQLSTATE 58030 (io_error) unless a better one is set.
    pub fn transient(sqlstate: &'static str, primary: impl Into<String>) -> Self {
        Self::with_kind(ErrorKind::Transient, sqlstate, primary)
    }

    /// Damaged, missing or foreign stored data; SQLSTATE XX001 (data_corrupted).
    pub fn damaged(primary: impl Into<String>) -> Self {
        Self::with_kind(ErrorKind::Damaged, sqlstate::DATA_CORRUPTED, primary)
    }

    /// A broken invariant of our own; SQLSTATE XX000.
    pub fn internal(primary: impl Into<String>) -> Self {
        Self::with_kind(ErrorKind::Internal, sqlstate::INTERNAL_ERROR, primary)
    }

    /// A feature PostgreSQL or the contract knows and this build does not; SQLSTATE 0A000.
    pub fn unsupported(primary: impl Into<String>) -> Self {
        Self::new(sqlstate::FEATURE_NOT_SUPPORTED, primary)
    }

    /// Adds DETAIL: a sentence.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// Adds HINT: a sentence with the statement that helps.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds the 1-based character position in the statement.
    #[must_use]
    pub fn position(mut self, position: usize) -> Self {
        self.0.position = Some(position);
        self
    }

    /// Adds what of a relation it is about.
    #[must_use]
    pub fn about(mut self, subject: Subject) -> Self {
        self.0.subject = Some(subject);
        self
    }

    /// Puts `context: ` before the primary line, such as the object's name.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.0.primary = format!("{context}: {}", self.0.primary);
        self
    }

    /// Puts ` place` after the primary line, such as the row that it is about.
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.0.primary = format!("{} {place}", self.0.primary);
        self
    }

    /// The same error with other words.
    #[must_use]
    pub fn with_texts(mut self, change: impl Fn(&str) -> String) -> Self {
        let body = &mut self.0;
        body.primary = change(&body.primary);
        body.detail = body.detail.as_deref().map(&change);
        body.hint = body.hint.as_deref().map(&change);
        self
    }

    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// A value is to blame, rather than the statement, memory or ourselves: class 22, such as a
    /// division by zero.
    pub fn is_of_value(&self) -> bool {
        self.0.kind == ErrorKind::User && self.0.sqlstate.starts_with("22")
    }

    /// The five-character SQLSTATE.
    pub fn sqlstate(&self) -> &'static str {
        self.0.sqlstate
    }

    /// The primary line.
    pub fn primary(&self) -> &str {
        &self.0.primary
    }

    /// The DETAIL sentence, if any.
    pub fn detail_text(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// The HINT sentence, if any.
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// What of a relation it is about, if that is known.
    pub fn subject(&self) -> Option<&Subject> {
        self.0.subject.as_ref()
    }

    /// The routine of PostgreSQL's that tells this error; drivers know few errors by it only.
    #[must_use]
    pub fn routine(mut self, name: &'static str) -> Self {
        self.0.routine = Some(name);
        self
    }

    /// See [`Self::routine`].
    pub fn routine_name(&self) -> Option<&'static str> {
        self.0.routine
    }

    /// 1-based character position in the statement, if known.
    pub fn position_value(&self) -> Option<usize> {
        self.0.position
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (SQLSTATE {})", self.0.primary, self.0.sqlstate)?;
        if let Some(detail) = &self.0.detail {
            write!(f, "\nDETAIL: {detail}")?;
        }
        if let Some(hint) = &self.0.hint {
            write!(f, "\nHINT: {hint}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
