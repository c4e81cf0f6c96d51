//! What an operator can say about a checkpoint and its pipeline. Pure, as all statements.

use serde_json::Value;

/// A statement that looks at a pipeline or its checkpoint, or mends it. The name is a pipeline's, or
/// that of a view or sink in it.
#[derive(Debug, Clone, PartialEq)]
pub enum RecoveryStatement {
    /// `DIAGNOSE CHECKPOINT OF name [AS JSON]`
    DiagnoseCheckpoint {
        /// name
        name: String,
        /// the shape of the guide's `diagnose_checkpoint()`
        as_json: bool,
    },
    /// `REPAIR CHECKPOINT OF name [DRY RUN]`
    RepairCheckpoint {
        /// name
        name: String,
        /// only say what would be done
        dry_run: bool,
    },
    /// `RESET CHECKPOINT OF name [FROM …]`
    ResetCheckpoint {
        /// name
        name: String,
        /// where it begins anew
        from: ResetFrom,
    },
    /// `REBUILD STATE OF name`
    RebuildState {
        /// name
        name: String,
    },
    /// `BACKUP CHECKPOINT OF name [TO 'location']`
    BackupCheckpoint {
        /// name
        name: String,
        /// `None`: below the data directory
        to: Option<String>,
    },
    /// `RESTORE CHECKPOINT OF name FROM 'location' [AT BATCH n]`
    RestoreCheckpoint {
        /// name
        name: String,
        /// where the backup lies
        from: String,
        /// `None`: its newest batch
        batch_id: Option<u64>,
    },
    /// `REWIND name TO BATCH n | BEFORE TIMESTAMP '…'`
    Rewind {
        /// name
        name: String,
        /// where to
        to: RewindTo,
    },
    /// `VERIFY MATERIALIZED VIEW v`
    Verify {
        /// name
        name: String,
    },
    /// `DIAGNOSE name`
    Diagnose {
        /// name
        name: String,
    },
    /// `CHECK name`
    Check {
        /// name
        name: String,
    },
}

impl RecoveryStatement {
    /// Its command tag.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::DiagnoseCheckpoint { .. } => "DIAGNOSE CHECKPOINT",
            Self::RepairCheckpoint { .. } => "REPAIR CHECKPOINT",
            Self::ResetCheckpoint { .. } => "RESET CHECKPOINT",
            Self::RebuildState { .. } => "REBUILD STATE",
            Self::BackupCheckpoint { .. } => "BACKUP CHECKPOINT",
            Self::RestoreCheckpoint { .. } => "RESTORE CHECKPOINT",
            Self::Rewind { .. } => "REWIND",
            Self::Verify { .. } => "VERIFY MATERIALIZED VIEW",
            Self::Diagnose { .. } => "DIAGNOSE",
            Self::Check { .. } => "CHECK",
        }
    }

    /// It changes a checkpoint.
    pub fn changes(&self) -> bool {
        match self {
            Self::RepairCheckpoint { dry_run, .. } => !dry_run,
            Self::ResetCheckpoint { .. }
            | Self::RebuildState { .. }
            | Self::RestoreCheckpoint { .. }
            | Self::Rewind { .. } => true,
            Self::DiagnoseCheckpoint { .. }
            | Self::BackupCheckpoint { .. }
            | Self::Verify { .. }
            | Self::Diagnose { .. }
            | Self::Check { .. } => false,
        }
    }

    /// The columns of its rows and whether each is a whole number; the others are text.
    pub fn columns(&self) -> &'static [(&'static str, bool)] {
        match self {
            Self::DiagnoseCheckpoint { as_json: true, .. } => &[("diagnose_checkpoint", false)],
            Self::DiagnoseCheckpoint { as_json: false, .. } => &[
                ("part", false),
                ("status", false),
                ("count", true),
                ("first", true),
                ("last", true),
                ("detail", false),
                ("repair", false),
            ],
            Self::RepairCheckpoint { .. } => &[
                ("part", false),
                ("finding", false),
                ("action", false),
                ("status", false),
                ("statement", false),
            ],
            Self::ResetCheckpoint { .. }
            | Self::RebuildState { .. }
            | Self::RestoreCheckpoint { .. }
            | Self::Rewind { .. } => &[("step", false), ("object", false), ("detail", false)],
            Self::BackupCheckpoint { .. } => &[
                ("id", false),
                ("location", false),
                ("batch_id", true),
                ("bytes", true),
                ("files", true),
                ("checksum", false),
            ],
            Self::Verify { .. } => &[
                ("view", false),
                ("status", false),
                ("batch_id", true),
                ("rows", true),
                ("missing_rows", true),
                ("unexpected_rows", true),
                ("detail", false),
                ("repair", false),
            ],
            Self::Diagnose { .. } | Self::Check { .. } => &[
                ("check", false),
                ("status", false),
                ("detail", false),
                ("statement", false),
            ],
        }
    }
}

/// Where a pipeline begins anew.
#[derive(Debug, Clone, PartialEq)]
pub enum ResetFrom {
    /// where the sources' options say
    Configured,
    /// `EARLIEST`
    Earliest,
    /// `LATEST`
    Latest,
    /// `TIMESTAMP '…'`, microseconds since the epoch
    Timestamp(i64),
    /// `OFFSETS '{…}'`: a position for each source by name, or of the only source by itself
    Offsets(Value),
}

/// Where to go back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RewindTo {
    /// the state after this batch
    Batch(u64),
    /// the newest batch that began before this time; microseconds since the epoch
    Before(i64),
}
