//! The sinks of a pipeline, and views and sinks that join or leave while it runs.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use super::opening::{Opened, reader_of};
use super::pipeline::{Pipeline, ViewEntry};
use super::shared::AddView;
use crate::catalog::definition::{CatalogObject, Definition};
use crate::checkpoint::CommitEntry;
use crate::connectors::{self, SinkInput, SinkRef};
use crate::dataflow::graph::Dataflow;
use crate::dataflow::plan::ViewPlan;
use crate::error::{Error, Result};

/// A sink of the pipeline.
pub(super) struct SinkEntry {
    pub name: String,
    /// The view whose changes it gets: its source, or the unstored view of its own name.
    pub view: String,
    pub sink: SinkRef,
    /// No commit knows it yet: it gets the view's whole contents first.
    pub is_new: bool,
    pub rows: u64,
    pub last_batch_id: Option<u64>,
    pub last_error: Option<Error>,
}

impl Pipeline {
    /// Opens all sinks; `last` says which of them have delivered before.
    pub(super) fn open_sinks(&mut self, last: Option<&CommitEntry>) -> Result<()> {
        self.sinks.clear();
        for object in self.sink_objects.clone() {
            let known = last.is_some_and(|c| c.sinks.contains(&object.name));
            let entry = self.open_sink(&object, !known)?;
            self.sinks.push(entry);
        }
        Ok(())
    }

    /// Takes over what was altered of the sinks.
    pub(super) fn renew_sink_objects(&mut self) {
        for object in &mut self.sink_objects {
            let defined = self.parts.definitions.object(&object.name);
            if let Some(now) = defined.filter(|now| now.oid == object.oid) {
                *object = now;
            }
        }
    }

    fn open_sink(&self, object: &CatalogObject, is_new: bool) -> Result<SinkEntry> {
        let dataflow = self.opened.as_ref().and_then(|o| o.dataflow.as_ref());
        let dataflow = dataflow.ok_or_else(|| super::planning::unknown(&object.name))?;
        let names = self.views.iter().map(|v| v.object.name.as_str());
        self.open_sink_over(object, names, &dataflow.lock(), is_new)
    }

    /// Opens the sinks of a pipeline that is not open, over views that are planned for it.
    pub(super) async fn sinks_at_rest(&self) -> Result<Vec<SinkEntry>> {
        if self.sink_objects.is_empty() {
            return Ok(Vec::new());
        }
        let mut dataflow = Dataflow::new().with_clock(self.parts.clock.clone());
        for object in &self.objects {
            let plan = self.plan(object).await?;
            self.remember(&ViewEntry::new(object.clone(), &plan), &plan)?;
            dataflow.add_view(plan)?;
        }
        let open = |object| {
            let names = self.objects.iter().map(|object| object.name.as_str());
            self.open_sink_over(object, names, &dataflow, false)
        };
        self.sink_objects.iter().map(open).collect()
    }

    fn open_sink_over<'a>(
        &self,
        object: &'a CatalogObject,
        mut views: impl Iterator<Item = &'a str>,
        dataflow: &Dataflow,
        is_new: bool,
    ) -> Result<SinkEntry> {
        let Definition::Sink(definition) = &object.definition else {
            return Err(Error::internal(format!("\"{}\" is no sink", object.name)));
        };
        let view = views
            .find(|name| *name == definition.from)
            .unwrap_or(&object.name);
        let unknown = || super::planning::unknown(view);
        let schema = dataflow.view_schema(view).ok_or_else(unknown)?;
        let (key, append_only) = dataflow.view_key(view).ok_or_else(unknown)?;
        let input = SinkInput {
            schema,
            append_only: Some(append_only),
            key: key.unwrap_or_default(),
        };
        let environment = self.parts.connector_environment(None, 0);
        Ok(SinkEntry {
            name: object.name.clone(),
            view: view.to_owned(),
            sink: connectors::open_sink(object, input, &environment)?,
            is_new,
            rows: 0,
            last_batch_id: None,
            last_error: None,
        })
    }

    /// A view joins at this batch border; the next batch fills it.
    pub(super) async fn add_view(&mut self, add: AddView) -> Result<()> {
        let AddView { object, plan } = add;
        if self.opened.as_ref().is_none_or(|o| o.dataflow.is_none()) {
            // Not open: the view is planned with the others when it is.
            self.objects.push(object);
            return Ok(());
        }
        let entry = ViewEntry::new(object.clone(), &plan);
        match &object.definition {
            // A view may be read while it is empty; an index only once it is filled.
            Definition::Index(_) => {
                let reader = reader_of(&object, &plan)?;
                self.switching.insert(object.name.clone(), reader);
            }
            _ => self.remember(&entry, &plan)?,
        }
        if let Err(e) = self.join(entry, plan).await {
            self.remove_view(&object.name).await?;
            return Err(e);
        }
        self.objects.push(object);
        self.refresh_board();
        Ok(())
    }

    async fn join(&mut self, entry: ViewEntry, plan: ViewPlan) -> Result<()> {
        let opened: &mut Opened = self.opened.as_mut().expect("checked by the caller");
        let name = entry.object.name.clone();
        if let Some(dataflow) = opened.dataflow.as_mut().map(Mutex::get_mut) {
            dataflow.add_view(plan)?;
        }
        opened.unfilled.insert(name);
        self.views.push(entry);
        self.open_sources(None).await?;
        self.plan_fills();
        Ok(())
    }

    /// Another query for a view, at this batch border: the next batch fills it, and until that one
    /// is shown its readers see what it held. With an error it goes on as it was. Its indexes start
    /// over with it, under their new definitions.
    pub(super) async fn replace_view(&mut self, replace: AddView) -> Result<()> {
        let view = replace.object.name.clone();
        let is_index = |o: &&CatalogObject| is_index_of(o, &view);
        let before: Vec<CatalogObject> = self.objects.iter().filter(is_index).cloned().collect();
        let opened = self.opened.as_ref();
        let unfilled = opened.map_or_else(BTreeSet::new, |o| o.unfilled.clone());
        for index in &before {
            self.remove_view(&index.name).await?;
        }
        if let Err(error) = self.replace_query(replace).await {
            for index in before {
                let name = index.name.clone();
                self.add_index(index).await?;
                if let Some(opened) = self.opened.as_mut().filter(|_| !unfilled.contains(&name)) {
                    opened.unfilled.remove(&name);
                    self.plan_fills();
                }
            }
            return Err(error);
        }
        for object in self.parts.definitions.objects() {
            if is_index_of(&object, &view) {
                self.add_index(object).await?;
            }
        }
        Ok(())
    }

    async fn add_index(&mut self, object: CatalogObject) -> Result<()> {
        if self.opened.as_ref().is_none_or(|o| o.dataflow.is_none()) {
            self.objects.push(object);
            return Ok(());
        }
        let plan = self.plan(&object).await?;
        self.add_view(AddView { object, plan }).await
    }

    async fn replace_query(&mut self, replace: AddView) -> Result<()> {
        let AddView { object, plan } = replace;
        let name = object.name.clone();
        if self.opened.as_ref().is_none_or(|o| o.dataflow.is_none()) {
            // Not open: the view is planned with the others when it is.
            self.objects.retain(|o| o.name != name);
            self.objects.push(object);
            return Ok(());
        }
        let reader = reader_of(&object, &plan)?;
        let before = self.exchange(&object, plan.clone())?;
        if let Err(error) = self.open_sources(None).await {
            if let Some((old, plan)) = before {
                self.exchange(&old, plan)?;
                if let Some(opened) = self.opened.as_mut() {
                    opened.unfilled.remove(&name);
                }
                self.open_sources(None).await?;
            }
            return Err(error);
        }
        self.registry.insert(&name, &plan);
        self.switching.insert(name.clone(), reader);
        self.shared.end_subscriptions(&name);
        self.objects.retain(|o| o.name != name);
        self.objects.push(object);
        self.plan_fills();
        self.refresh_board();
        Ok(())
    }

    /// Puts a view's plan in the place of the one of its name, to be filled; what was there.
    fn exchange(
        &mut self,
        object: &CatalogObject,
        plan: ViewPlan,
    ) -> Result<Option<(CatalogObject, ViewPlan)>> {
        let opened: &mut Opened = self.opened.as_mut().expect("checked by the caller");
        let name = &object.name;
        let entry = ViewEntry::new(object.clone(), &plan);
        let Some(dataflow) = opened.dataflow.as_mut().map(Mutex::get_mut) else {
            return Err(Error::internal("the dataflow is gone"));
        };
        let old_plan = dataflow.plans().find(|p| p.name == *name).cloned();
        dataflow.remove_view(name);
        dataflow.add_view(plan)?;
        opened.unfilled.insert(name.clone());
        let at = self.views.iter().position(|v| v.object.name == *name);
        let old = at.map(|at| self.views.remove(at).object);
        self.views.push(entry);
        Ok(old.zip(old_plan))
    }

    /// A view leaves at this batch border; its state is deleted with the next batch.
    pub(super) async fn remove_view(&mut self, name: &str) -> Result<()> {
        self.objects.retain(|o| o.name != name);
        self.views.retain(|v| v.object.name != name);
        self.shared.readers.write().remove(name);
        self.shared.end_subscriptions(name);
        self.registry.remove(name);
        self.switching.remove(name);
        if let Some(opened) = self.opened.as_mut() {
            opened.unfilled.remove(name);
            if let Some(dataflow) = opened.dataflow.as_mut().map(Mutex::get_mut) {
                dataflow.remove_view(name);
            }
            self.open_sources(None).await?;
            self.plan_fills();
        }
        self.refresh_board();
        Ok(())
    }

    /// A sink joins at this batch border; it gets the view's contents with the next batch.
    pub(super) fn add_sink(&mut self, object: CatalogObject) -> Result<()> {
        if self.opened.is_some() {
            let entry = self.open_sink(&object, true)?;
            self.sinks.push(entry);
        }
        self.sink_objects.push(object);
        self.refresh_board();
        Ok(())
    }
}

fn is_index_of(object: &CatalogObject, view: &str) -> bool {
    matches!(&object.definition, Definition::Index(index) if index.view == view)
}
