//! The engine's status in Prometheus' text format (version 0.0.4).
//!
//! Names are `tidemill_…` with the unit last; labels are the objects' names. Figures that are not
//! known yet are left out rather than sent as zero. One family is one HELP, one TYPE and all
//! its samples, as the format demands.

use std::fmt::Write;

use crate::catalog::pg_catalog::backends::{Activity, BackendState};
use crate::database::Database;
use crate::engine::status::EngineStatus;

/// Where `/metrics` takes its figures from; must not block.
pub trait StatusSource: Send + Sync {
    /// State of everything that runs.
    fn engine_status(&self) -> EngineStatus;
    /// Who is connected.
    fn connections(&self) -> Vec<Activity>;
}

impl StatusSource for Database {
    fn engine_status(&self) -> EngineStatus {
        Database::engine_status(self)
    }

    fn connections(&self) -> Vec<Activity> {
        self.backends().activities()
    }
}

/// Collects samples of one family at a time.
struct Page {
    text: String,
}

type Labels<'a> = &'a [(&'a str, &'a str)];

impl Page {
    fn family<'a>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<(&'a str, &'a str)>, Option<f64>)>,
    ) {
        let mut lines = String::new();
        for (labels, value) in samples {
            if let Some(value) = value {
                sample(&mut lines, name, &labels, value);
            }
        }
        if !lines.is_empty() {
            // Writing to a String cannot fail.
            write!(
                self.text,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}"
            )
            .expect("a String takes all that is written");
        }
    }
}

fn sample(lines: &mut String, name: &str, labels: Labels<'_>, value: f64) {
    lines.push_str(name);
    for (n, (label, text)) in labels.iter().enumerate() {
        let text = text
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        let before = if n == 0 { '{' } else { ',' };
        write!(lines, "{before}{label}=\"{text}\"").expect("a String takes all that is written");
    }
    if !labels.is_empty() {
        lines.push('}');
    }
    writeln!(lines, " {value}").expect("a String takes all that is written");
}

/// The whole page.
pub(super) fn render(status: &EngineStatus, connections: &[Activity]) -> String {
    let mut page = Page {
        text: String::with_capacity(4096),
    };
    page.family(
        "tidemill_build_info",
        "gauge",
        "Version of the server, always 1.",
        [(vec![("version", env!("CARGO_PKG_VERSION"))], Some(1.0))],
    );
    connection_families(&mut page, connections);
    query_families(&mut page, status);
    pipeline_families(&mut page, status);
    source_families(&mut page, status);
    operator_families(&mut page, status);
    sink_and_checkpoint_families(&mut page, status);
    page.text
}

fn connection_families(page: &mut Page, connections: &[Activity]) {
    let states = [
        BackendState::Idle,
        BackendState::Active,
        BackendState::IdleInTransaction,
        BackendState::IdleInFailedTransaction,
    ];
    page.family(
        "tidemill_connections",
        "gauge",
        "Sessions by state.",
        states.map(|state| {
            let count = connections.iter().filter(|c| c.state == state).count();
            (vec![("state", state.as_str())], Some(count as f64))
        }),
    );
}

fn query_families(page: &mut Page, status: &EngineStatus) {
    let queries = &status.queries;
    page.family(
        "tidemill_query_status",
        "gauge",
        "1 for the status that a view is in.",
        queries.iter().map(|q| {
            let labels = vec![
                ("stream_name", q.stream_name.as_str()),
                ("pipeline", q.pipeline.as_str()),
                ("status", q.status),
            ];
            (labels, Some(1.0))
        }),
    );
    let mut gauge =
        |name: &str, help: &str, value: fn(&crate::engine::status::QueryStatus) -> Option<f64>| {
            page.family(
                name,
                "gauge",
                help,
                queries
                    .iter()
                    .map(|q| (vec![("stream_name", q.stream_name.as_str())], value(q))),
            );
        };
    gauge(
        "tidemill_query_last_batch_id",
        "Last committed batch of a view.",
        |q| q.last_batch_id.map(|id| id as f64),
    );
    gauge(
        "tidemill_query_failed",
        "1 when a view's last error stands.",
        |q| Some(f64::from(u8::from(q.exception.is_some()))),
    );
    gauge(
        "tidemill_query_trigger_active",
        "1 while a batch of the view runs.",
        |q| Some(f64::from(u8::from(q.is_trigger_active))),
    );
    gauge(
        "tidemill_query_progress_percent",
        "Progress of a view that catches up.",
        |q| q.progress_percent,
    );
}

fn pipeline_families(page: &mut Page, status: &EngineStatus) {
    let pipelines = &status.pipelines;
    let mut family =
        |name: &str,
         kind: &str,
         help: &str,
         value: fn(&crate::engine::status::PipelineStatus) -> Option<f64>| {
            page.family(
                name,
                kind,
                help,
                pipelines
                    .iter()
                    .map(|p| (vec![("pipeline", p.pipeline.as_str())], value(p))),
            );
        };
    family(
        "tidemill_pipeline_last_batch_id",
        "gauge",
        "Last committed batch.",
        |p| p.last_batch_id.map(|id| id as f64),
    );
    family(
        "tidemill_pipeline_restarts_total",
        "counter",
        "Restarts after failures.",
        |p| Some(p.restarts as f64),
    );
    family(
        "tidemill_pipeline_watermark_seconds",
        "gauge",
        "Watermark, seconds since 1970.",
        |p| p.watermark_at_us.map(seconds),
    );
    family(
        "tidemill_pipeline_state_memory_bytes",
        "gauge",
        "State held in memory.",
        |p| Some(p.state_memory_bytes as f64),
    );
    family(
        "tidemill_pipeline_state_disk_bytes",
        "gauge",
        "State held on disk.",
        |p| Some(p.state_disk_bytes as f64),
    );
}

fn source_families(page: &mut Page, status: &EngineStatus) {
    let sources = &status.sources;
    let mut family =
        |name: &str,
         kind: &str,
         help: &str,
         value: fn(&crate::engine::status::SourceStatus) -> Option<f64>| {
            page.family(
                name,
                kind,
                help,
                sources.iter().map(|s| {
                    let labels = vec![
                        ("pipeline", s.pipeline.as_str()),
                        ("source_name", s.source_name.as_str()),
                    ];
                    (labels, value(s))
                }),
            );
        };
    family(
        "tidemill_source_input_rows_total",
        "counter",
        "Rows read.",
        |s| Some(s.num_input_rows as f64),
    );
    family(
        "tidemill_source_backlog_rows",
        "gauge",
        "Rows waiting.",
        |s| s.backlog_rows.map(|n| n as f64),
    );
    family(
        "tidemill_source_backlog_bytes",
        "gauge",
        "Bytes waiting.",
        |s| s.backlog_bytes.map(|n| n as f64),
    );
    family(
        "tidemill_source_input_rows_per_second",
        "gauge",
        "Rate of arrival.",
        |s| s.input_rows_per_second,
    );
    family(
        "tidemill_source_processed_rows_per_second",
        "gauge",
        "Rate of processing.",
        |s| s.processed_rows_per_second,
    );
    family(
        "tidemill_source_last_data_seconds",
        "gauge",
        "Time of the last row, seconds since 1970.",
        |s| s.last_data_at_us.map(seconds),
    );
    family(
        "tidemill_source_failed",
        "gauge",
        "1 when the source's last error stands.",
        |s| Some(f64::from(u8::from(s.last_error.is_some()))),
    );
}

fn operator_families(page: &mut Page, status: &EngineStatus) {
    let operators = &status.state_operators;
    let ordinals: Vec<String> = (0..operators.len()).map(|n| n.to_string()).collect();
    let mut family =
        |name: &str,
         kind: &str,
         help: &str,
         value: fn(&crate::engine::status::StateOperatorStatus) -> f64| {
            page.family(
                name,
                kind,
                help,
                operators.iter().zip(&ordinals).map(|(o, ordinal)| {
                    let labels = vec![
                        ("pipeline", o.pipeline.as_str()),
                        ("stream_name", o.stream_name.as_str()),
                        ("operator", o.operator_name.as_str()),
                        ("ordinal", ordinal.as_str()),
                    ];
                    (labels, Some(value(o)))
                }),
            );
        };
    family(
        "tidemill_state_rows",
        "gauge",
        "Rows an operator keeps.",
        |o| o.num_rows_total as f64,
    );
    family(
        "tidemill_state_rows_updated",
        "gauge",
        "Rows changed by the last batch.",
        |o| o.num_rows_updated as f64,
    );
    family(
        "tidemill_state_rows_removed",
        "gauge",
        "Rows removed by the last batch.",
        |o| o.num_rows_removed as f64,
    );
    family(
        "tidemill_state_memory_bytes",
        "gauge",
        "Memory an operator keeps.",
        |o| o.memory_bytes as f64,
    );
}

fn sink_and_checkpoint_families(page: &mut Page, status: &EngineStatus) {
    let sink = |s: &crate::engine::status::SinkStatus, value: Option<f64>| {
        value.filter(|_| !s.sink_name.is_empty())
    };
    page.family(
        "tidemill_sink_output_rows_total",
        "counter",
        "Rows delivered.",
        status.sinks.iter().map(|s| {
            (
                vec![("sink_name", s.sink_name.as_str())],
                sink(s, Some(s.num_output_rows as f64)),
            )
        }),
    );
    page.family(
        "tidemill_sink_failed",
        "gauge",
        "1 when the sink's last error stands.",
        status.sinks.iter().map(|s| {
            let failed = f64::from(u8::from(s.last_error.is_some()));
            (
                vec![("sink_name", s.sink_name.as_str())],
                sink(s, Some(failed)),
            )
        }),
    );
    let mut family =
        |name: &str,
         help: &str,
         value: fn(&crate::engine::status::CheckpointStatus) -> Option<f64>| {
            page.family(
                name,
                "gauge",
                help,
                status
                    .checkpoints
                    .iter()
                    .map(|c| (vec![("pipeline", c.pipeline.as_str())], value(c))),
            );
        };
    family("tidemill_checkpoint_bytes", "Size of a checkpoint.", |c| {
        Some(c.bytes as f64)
    });
    family("tidemill_checkpoint_files", "Files of a checkpoint.", |c| {
        Some(c.files as f64)
    });
    family(
        "tidemill_checkpoint_missing_batches",
        "Batches missing in a checkpoint.",
        |c| Some(c.missing_batches as f64),
    );
    family(
        "tidemill_checkpoint_last_commit_seconds",
        "Last commit, seconds since 1970.",
        |c| c.last_commit_at_us.map(seconds),
    );
}

fn seconds(us: i64) -> f64 {
    us as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::status::{CheckpointStatus, QueryStatus, SourceStatus};

    #[test]
    fn families_are_whole_and_unknown_figures_absent() {
        let query = |name: &str, last| QueryStatus {
            stream_name: name.to_owned(),
            pipeline: "p".to_owned(),
            status: "running",
            last_batch_id: last,
            ..QueryStatus::default()
        };
        let status = EngineStatus {
            queries: vec![query("a\"b", Some(7)), query("c", None)],
            sources: vec![SourceStatus {
                num_input_rows: 3,
                ..SourceStatus::default()
            }],
            checkpoints: vec![CheckpointStatus::default()],
            ..EngineStatus::default()
        };
        let text = render(&status, &[]);
        assert!(text.contains("tidemill_query_last_batch_id{stream_name=\"a\\\"b\"} 7\n"));
        assert!(!text.contains("tidemill_query_last_batch_id{stream_name=\"c\"}"));
        assert!(!text.contains("tidemill_source_backlog_rows"));
        assert_eq!(
            text.matches("# TYPE tidemill_query_status gauge\n").count(),
            1
        );
        assert!(text.contains("tidemill_connections{state=\"active\"} 0\n"));
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (_, value) = line.rsplit_once(' ').unwrap();
            value.parse::<f64>().unwrap();
        }
    }
}
