//! What a pipeline tells: its status rows, kept where anyone reads them without asking its task.

use super::opening::{FillInput, Opened};
use super::pipeline::Pipeline;
use super::shared::Doing;
use super::status::{
    CheckpointStatus, PipelineStatus, QueryStatus, SinkStatus, SourceStatus, StateOperatorStatus,
};
use crate::checkpoint::OffsetEntry;

impl Pipeline {
    /// Sets the status and tells it.
    pub(super) fn tell(&mut self, status: &'static str) {
        if self.status != status {
            self.status = status;
            self.since_us = self.parts.clock.now_us();
        }
        self.refresh_board();
        self.shared.status.send_replace(status);
        self.beat(Doing::Waiting);
    }

    /// Says that the pipeline gets on, and with what.
    pub(super) fn beat(&self, doing: Doing) {
        self.shared.beat(doing, self.parts.clock.now_us());
    }

    /// Tells that a batch runs.
    pub(super) fn tell_active(&mut self, entry: &OffsetEntry) {
        let Some(opened) = &self.opened else { return };
        let planned = opened.planned_rows(entry);
        let waiting = opened
            .slots
            .iter()
            .map(|s| s.backlog.rows)
            .sum::<Option<u64>>();
        let is_behind = waiting > planned && planned.is_some();
        let is_catching_up = is_behind || !opened.unfilled.is_empty();
        let status = if is_catching_up {
            "catching up"
        } else {
            "running"
        };
        if self.status != status {
            self.tell(status);
        }
        self.beat(Doing::Reading);
        let mut board = self.shared.board.lock();
        if !std::mem::replace(&mut self.is_catching_up, is_catching_up) {
            board.progress.rows_done = 0;
        }
        let rows_left = planned.map(|planned| planned.max(waiting.unwrap_or(0)));
        board.progress.rows_total = rows_left.map(|left| board.progress.rows_done + left);
        for query in board.queries.values_mut() {
            query.is_trigger_active = true;
            query.is_data_available = true;
            query.message = format!("processing batch {}", entry.batch_id);
        }
    }

    /// Copies the pipeline's facts onto the board.
    pub(super) fn refresh_board(&mut self) {
        let pipeline = self.pipeline_status();
        let queries = self
            .objects
            .iter()
            .map(|o| (o.name.clone(), self.query_status(&o.name)))
            .collect();
        let (sources, operators, checkpoint) = (
            self.source_statuses(),
            self.operator_statuses(),
            self.checkpoint_status(),
        );
        let sinks = self.sink_statuses();
        let mut board = self.shared.board.lock();
        board.pipeline = pipeline;
        board.queries = queries;
        board.sinks = sinks;
        if let Some(sources) = sources {
            board.sources = sources;
        }
        if let Some(operators) = operators {
            board.state_operators = operators;
        }
        if let Some(checkpoint) = checkpoint {
            board.checkpoint = checkpoint;
        }
    }

    fn pipeline_status(&self) -> PipelineStatus {
        let opened = self.opened.as_ref();
        let stats = self.state.as_ref().map(|s| s.stats()).unwrap_or_default();
        PipelineStatus {
            pipeline: self.shared.name.clone(),
            pipeline_id: self.shared.id.to_string(),
            run_id: self.run_id.to_string(),
            status: self.status,
            trigger: self.settings.trigger_text.clone(),
            checkpoint_location: self.location(),
            last_batch_id: self.shared.publication.lock().batch_id,
            restarts: self.restarts,
            next_retry_at_us: self.next_retry_at_us,
            watermark_at_us: opened.and_then(|o| o.watermark),
            state_memory_bytes: stats.memory_bytes,
            state_disk_bytes: stats.disk_bytes,
        }
    }

    fn query_status(&self, name: &str) -> QueryStatus {
        let opened = self.opened.as_ref();
        let waiting_on = opened.and_then(|o| o.slots.iter().find_map(|s| s.last_error.clone()));
        let error = self.error.clone().or(waiting_on);
        let message = match (&error, self.status) {
            (Some(e), _) => e.primary().to_owned(),
            (None, status) => status.to_owned(),
        };
        QueryStatus {
            stream_name: name.to_owned(),
            pipeline: self.shared.name.clone(),
            status: self.status,
            last_batch_id: self.shared.publication.lock().batch_id,
            is_trigger_active: false,
            is_data_available: opened
                .is_some_and(|o| o.slots.iter().any(|s| s.backlog.rows.unwrap_or(0) > 0)),
            message,
            exception: error.as_ref().map(|e| e.primary().to_owned()),
            exception_sqlstate: error.as_ref().map(|e| e.sqlstate().to_owned()),
            hint: error
                .as_ref()
                .and_then(|e| e.hint_text().map(str::to_owned)),
            since_at_us: self.since_us,
            progress_percent: None,
            progress_rows: None,
        }
    }

    fn source_statuses(&self) -> Option<Vec<SourceStatus>> {
        let opened = self.opened.as_ref()?;
        let of = |slot: &super::intake::SourceSlot| SourceStatus {
            pipeline: self.shared.name.clone(),
            source_name: slot.relation.clone(),
            description: slot.source.description(),
            start_offset: Some(slot.initial.0.to_string()),
            end_offset: Some(slot.position.0.to_string()),
            latest_offset: slot.latest.as_ref().map(|l| l.0.to_string()),
            backlog_rows: slot.backlog.rows,
            backlog_bytes: slot.backlog.bytes,
            num_input_rows: slot.last_rows,
            input_rows_per_second: slot.rows_per_second,
            processed_rows_per_second: slot.rows_per_second,
            last_data_at_us: slot.last_data_at_us,
            last_error: slot.last_error.as_ref().map(|e| e.primary().to_owned()),
        };
        Some(opened.slots.iter().map(of).collect())
    }

    fn operator_statuses(&self) -> Option<Vec<StateOperatorStatus>> {
        let dataflow = self.opened.as_ref()?.dataflow.as_ref()?.lock();
        let of_index = |(view, index, rows): (&str, &str, u64)| StateOperatorStatus {
            pipeline: self.shared.name.clone(),
            stream_name: view.to_owned(),
            operator_name: index.to_owned(),
            detail: "index".to_owned(),
            incremental: true,
            num_rows_total: rows,
            num_rows_updated: 0,
            num_rows_removed: 0,
            memory_bytes: 0,
            retention: "as long as the view's rows".to_owned(),
            // Its view's operators say what bounds both.
            bound: None,
        };
        let indexes: Vec<_> = dataflow.indexes().map(of_index).collect();
        let rows = dataflow
            .statistics()
            .into_iter()
            .filter(|(_, _, d, _)| d.state.is_some());
        let of = |(view, operator, description, s): (
            String,
            String,
            crate::dataflow::operator::OperatorDescription,
            crate::dataflow::operator::OperatorStatistics,
        )| StateOperatorStatus {
            pipeline: self.shared.name.clone(),
            stream_name: view,
            operator_name: operator,
            detail: description.detail,
            incremental: description.incremental,
            num_rows_total: s.state_rows,
            num_rows_updated: s.state_rows_updated,
            num_rows_removed: s.state_rows_removed,
            memory_bytes: s.memory_bytes,
            bound: description.retention.as_ref().map(|kept| kept.bound),
            retention: description
                .retention
                .map(|kept| kept.words)
                .unwrap_or_default(),
        };
        Some(rows.map(of).chain(indexes).collect())
    }

    fn sink_statuses(&self) -> Vec<SinkStatus> {
        let of = |sink: &super::sinks::SinkEntry| SinkStatus {
            sink_name: sink.name.clone(),
            pipeline: self.shared.name.clone(),
            description: sink.sink.description(),
            last_batch_id: sink.last_batch_id,
            num_output_rows: sink.rows,
            last_error: sink.last_error.as_ref().map(|e| e.primary().to_owned()),
        };
        self.sinks.iter().map(of).collect()
    }

    fn checkpoint_status(&self) -> Option<CheckpointStatus> {
        let stats = self.opened.as_ref()?.checkpoint.stats();
        Some(CheckpointStatus {
            pipeline: self.shared.name.clone(),
            location: self.location(),
            first_batch_id: stats.first_batch_id,
            last_batch_id: stats.last_batch_id,
            bytes: stats.bytes,
            files: stats.files,
            last_commit_at_us: self.opened.as_ref().and_then(|o| o.last_batch_at_us),
            missing_batches: stats.missing_batches,
            health: if stats.missing_batches == 0 {
                "ok"
            } else {
                "gap"
            }
            .to_owned(),
        })
    }
}

impl Opened {
    /// Rows that the batch takes from its sources and that its new views are filled with, where
    /// the sources can tell.
    fn planned_rows(&self, entry: &OffsetEntry) -> Option<u64> {
        let planned = self.slots.iter().filter_map(|slot| {
            let range = entry.sources.get(&slot.relation)?;
            Some(slot.source.backlog(&range.start, &range.end).rows)
        });
        let fills = self.fills.iter().map(|(_, fill)| match fill {
            FillInput::Stored { .. } => None,
            FillInput::Source { name } => {
                let slot = self.slots.iter().find(|slot| slot.relation == *name)?;
                slot.source.backlog(&slot.initial, &slot.position).rows
            }
        });
        planned.chain(fills).sum()
    }
}
