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
    /// `BACKUP DATABASE TO 'location'`
    BackupDatabase {
        /// an empty folder or prefix
        to: String,
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
    /// `VERIFY MATERIALIZED VIEW v [SAMPLE n]`
    Verify {
        /// name
        name: String,
        /// compare about so many rows; `None`: all
        sample: Option<u64>,
    },
    /// `RUN RECOVERY DRILL ON name [WITH (fault = '…')]`
    RunDrill {
        /// name
        name: String,
        /// names of faults with commas between; `None`: all
        faults: Option<String>,
    },
    /// `TEST SOURCE s`
    TestSource {
        /// stream
        name: String,
    },
    /// `TEST SINK k`
    TestSink {
        /// sink
        name: String,
    },
    /// `SUGGEST WATERMARK FOR s`
    SuggestWatermark {
        /// stream
        name: String,
    },
    /// `REPLAY DEAD LETTERS OF s`
    ReplayDeadLetters {
        /// stream
        name: String,
    },
    /// `COMPARE SCHEMA OF name`
    CompareSchema {
        /// stream, view, sink or pipeline
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
            Self::BackupDatabase { .. } => "BACKUP DATABASE",
            Self::RestoreCheckpoint { .. } => "RESTORE CHECKPOINT",
            Self::Rewind { .. } => "REWIND",
            Self::Verify { .. } => "VERIFY MATERIALIZED VIEW",
            Self::RunDrill { .. } => "RUN RECOVERY DRILL",
            Self::TestSource { .. } => "TEST SOURCE",
            Self::TestSink { .. } => "TEST SINK",
            Self::SuggestWatermark { .. } => "SUGGEST WATERMARK",
            Self::ReplayDeadLetters { .. } => "REPLAY DEAD LETTERS",
            Self::CompareSchema { .. } => "COMPARE SCHEMA",
            Self::Diagnose { .. } => "DIAGNOSE",
            Self::Check { .. } => "CHECK",
        }
    }

    /// What it is about; `None`: the whole database.
    pub fn target(&self) -> Option<&str> {
        match self {
            Self::DiagnoseCheckpoint { name, .. }
            | Self::RepairCheckpoint { name, .. }
            | Self::ResetCheckpoint { name, .. }
            | Self::RebuildState { name }
            | Self::BackupCheckpoint { name, .. }
            | Self::RestoreCheckpoint { name, .. }
            | Self::Rewind { name, .. }
            | Self::Verify { name, .. }
            | Self::RunDrill { name, .. }
            | Self::TestSource { name }
            | Self::TestSink { name }
            | Self::SuggestWatermark { name }
            | Self::ReplayDeadLetters { name }
            | Self::CompareSchema { name }
            | Self::Diagnose { name }
            | Self::Check { name } => Some(name),
            Self::BackupDatabase { .. } => None,
        }
    }

    /// It changes a checkpoint, or what a pipeline takes in.
    pub fn changes(&self) -> bool {
        match self {
            Self::RepairCheckpoint { dry_run, .. } => !dry_run,
            Self::ResetCheckpoint { .. }
            | Self::RebuildState { .. }
            | Self::RestoreCheckpoint { .. }
            | Self::Rewind { .. }
            | Self::ReplayDeadLetters { .. } => true,
            Self::DiagnoseCheckpoint { .. }
            | Self::BackupCheckpoint { .. }
            | Self::BackupDatabase { .. }
            | Self::Verify { .. }
            | Self::RunDrill { .. }
            | Self::TestSource { .. }
            | Self::TestSink { .. }
            | Self::SuggestWatermark { .. }
            | Self::CompareSchema { .. }
            | Self::Diagnose { .. }
            | Self::Check { .. } => false,
        }
    }

    /// It changes nothing that a transaction could take back, or takes its copy of one instant: it cannot be
    /// a part of one.
    pub fn is_refused_in_block(&self) -> bool {
        self.changes()
            || matches!(
                self,
                Self::BackupCheckpoint { .. } | Self::BackupDatabase { .. } | Self::RunDrill { .. }
            )
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
            Self::BackupDatabase { .. } => &[
                ("part", false),
                ("name", false),
                ("batch_id", true),
                ("bytes", true),
                ("files", true),
            ],
            Self::Verify { .. } => &[
                ("view", false),
                ("status", false),
                ("batch_id", true),
                ("rows", true),
                ("missing_rows", true),
                ("unexpected_rows", true),
                ("method", false),
                ("detail", false),
                ("repair", false),
            ],
            Self::RunDrill { .. } => &[
                ("id", false),
                ("fault", false),
                ("verdict", false),
                ("batch_id", true),
                ("statements", false),
                ("duration_ms", true),
                ("rows", true),
                ("missing_rows", true),
                ("unexpected_rows", true),
                ("detail", false),
            ],
            Self::TestSource { .. } | Self::TestSink { .. } => &[
                ("check", false),
                ("status", false),
                ("detail", false),
                ("duration_ms", true),
                ("statement", false),
            ],
            Self::SuggestWatermark { .. } => &[
                ("percent_in_time", false),
                ("delay", false),
                ("late_rows", true),
                ("rows_in_delay", true),
                ("statement", false),
            ],
            Self::ReplayDeadLetters { .. } => &[
                ("pipeline", false),
                ("replayed", true),
                ("left", true),
                ("detail", false),
                ("statement", false),
            ],
            Self::CompareSchema { .. } => &[
                ("stream", false),
                ("source_field", false),
                ("source_type", false),
                ("stream_column", false),
                ("stream_type", false),
                ("view_columns", false),
                ("sink_columns", false),
                ("status", false),
                ("detail", false),
                ("statement", false),
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
