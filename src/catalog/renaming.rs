//! Renamed relations: one name for users, and one that all files know.
//!
//! ```text
//!   ALTER … v RENAME TO w        users         pipelines, checkpoints, history     queries written before
//!                                w             v, for as long as it lives          v, which means w
//! ```
//!
//! State tables, offsets and the metrics log hold names, so that a relation keeps the one that it was created under
//! for all that runs, and a running pipeline need not know that it was renamed. Queries stay as they were written, with what
//! their names mean now beside them: a plan is the same before and after. Where an older relation keeps a name that a new
//! one is created under, the new one is kept under its name and identifier.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::definition::{CatalogObject, Definition};
use super::snapshot::{CatalogSnapshot, depends_on};

/// Between the name and the identifier of one that is not kept under its name alone.
const IDENTIFIER_MARK: char = '#';

/// What the engine and history know a relation by, whatever users call it; a pipeline has one name, which is this one
/// too. Made of what the catalog has: a name that a user said is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptName(String);

impl KeptName {
    /// Of a relation or sink.
    pub fn of(object: &CatalogObject) -> Self {
        Self(object.kept_name().to_owned())
    }

    /// Of a pipeline.
    pub fn of_pipeline(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl CatalogObject {
    /// What pipelines and history know it by.
    pub fn kept_name(&self) -> &str {
        self.kept_as.as_deref().unwrap_or(&self.name)
    }
}

impl CatalogSnapshot {
    /// What the relation of a name is kept under.
    pub fn kept_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.permanent(name).map_or(name, |o| o.kept_name())
    }

    /// The object that is kept under a name.
    pub fn by_kept_name(&self, kept: &str) -> Option<&Arc<CatalogObject>> {
        let is_kept_so = |object: &&Arc<CatalogObject>| object.kept_name() == kept;
        let namesake = self.permanent(kept).filter(is_kept_so);
        let mut all = self.objects().filter(|object| !object.is_temporary());
        namesake.or_else(|| all.find(is_kept_so))
    }

    /// The name of what is kept under another one, as users know it.
    pub fn shown_name<'a>(&'a self, kept: &'a str) -> &'a str {
        self.by_kept_name(kept).map_or(kept, |object| &object.name)
    }

    /// What is kept under other names than users know, by those.
    pub fn shown_names(&self) -> BTreeMap<String, String> {
        let renamed = self.objects().filter_map(|object| {
            let kept = object.kept_as.clone()?;
            Some((kept, object.name.clone()))
        });
        renamed.collect()
    }

    /// Pipelines whose names mean others in statements, since these are those of other views or sinks; each with one
    /// of its own that means it.
    pub fn hidden_pipelines(&self) -> BTreeMap<String, String> {
        let names = self.pipelines().map(|(name, _)| name);
        let hidden = names.filter(|name| self.pipeline_named(name) != Some(name.as_str()));
        let named = hidden.filter_map(|name| {
            let member = *self.pipeline_members(name).first()?;
            Some((name.clone(), member.name.clone()))
        });
        named.collect()
    }

    /// What a new relation of a name is kept under, if not under that: one that it replaces hands its own on.
    pub fn kept_as_of_new(&self, name: &str, oid: u32) -> Option<String> {
        match self.permanent(name) {
            Some(replaced) => replaced.kept_as.clone(),
            None => self
                .by_kept_name(name)
                .map(|_| format!("{name}{IDENTIFIER_MARK}{oid}")),
        }
    }

    /// A definition as pipelines know it: all names are those that are kept, and mean what they meant.
    pub fn as_kept(&self, object: &CatalogObject) -> CatalogObject {
        let mut known = object.clone();
        known.name = object.kept_name().to_owned();
        let kept = |name: &str| self.kept_name(name).to_owned();
        match &mut known.definition {
            Definition::MaterializedView(view) => {
                view.depends_on
                    .iter_mut()
                    .for_each(|name| *name = kept(name));
            }
            Definition::View(view) => {
                view.depends_on
                    .iter_mut()
                    .for_each(|name| *name = kept(name));
            }
            Definition::Sink(sink) => {
                let from = kept(&sink.from);
                let from = std::mem::replace(&mut sink.from, from);
                known.renamed.insert(sink.from.clone(), from);
            }
            Definition::Index(index) => {
                let view = kept(&index.view);
                let view = std::mem::replace(&mut index.view, view);
                known.renamed.insert(index.view.clone(), view);
            }
            Definition::Stream(_) | Definition::Table(_) => {}
        }
        known.renamed.retain(|written, name| written != name);
        known
    }
}

/// Gives an object another name, and all that names it.
pub(super) fn rename(
    objects: &mut BTreeMap<String, Arc<CatalogObject>>,
    name: &str,
    new_name: &str,
) {
    let Some(mut object) = objects.remove(name) else {
        return;
    };
    let renamed = Arc::make_mut(&mut object);
    let kept = renamed.kept_name().to_owned();
    renamed.name = new_name.to_owned();
    renamed.kept_as = (kept != new_name).then_some(kept);
    objects.insert(new_name.to_owned(), object);
    follow_all(objects, name, new_name);
}

/// The definitions that name a renamed relation.
pub fn follow_all(readers: &mut BTreeMap<String, Arc<CatalogObject>>, name: &str, new_name: &str) {
    for reader in readers.values_mut() {
        if depends_on(&reader.definition).any(|read| read == name) {
            follow(Arc::make_mut(reader), name, new_name);
        }
    }
}

/// A definition that names a renamed relation.
pub fn follow(reader: &mut CatalogObject, name: &str, new_name: &str) {
    let (reads, versions) = match &mut reader.definition {
        Definition::MaterializedView(view) => (&mut view.depends_on, &mut view.versions),
        Definition::View(view) => (&mut view.depends_on, &mut view.versions),
        Definition::Sink(sink) => {
            sink.from = new_name.to_owned();
            if let Some(version) = sink.versions.remove(name) {
                sink.versions.insert(new_name.to_owned(), version);
            }
            return;
        }
        Definition::Index(index) => {
            index.view = new_name.to_owned();
            return;
        }
        Definition::Stream(_) | Definition::Table(_) => return,
    };
    for read in reads.iter_mut().filter(|read| *read == name) {
        *read = new_name.to_owned();
    }
    if let Some(version) = versions.remove(name) {
        versions.insert(new_name.to_owned(), version);
    }
    let mut is_known = false;
    for meant in reader.renamed.values_mut().filter(|meant| *meant == name) {
        *meant = new_name.to_owned();
        is_known = true;
    }
    if !is_known {
        reader.renamed.insert(name.to_owned(), new_name.to_owned());
    }
    reader.renamed.retain(|written, meant| written != meant);
}

#[cfg(test)]
mod tests {
    use super::super::definition::ViewDefinition;
    use super::super::samples;
    use super::*;

    fn view(oid: u32, name: &str, reads: &str) -> Arc<CatalogObject> {
        let definition = ViewDefinition {
            query: format!("SELECT * FROM {reads}"),
            columns: Vec::new(),
            depends_on: vec![reads.to_owned()],
            versions: BTreeMap::from([(reads.to_owned(), 1)]),
            functions: Vec::new(),
        };
        Arc::new(samples::object(oid, name, Definition::View(definition)))
    }

    fn objects() -> BTreeMap<String, Arc<CatalogObject>> {
        let stream = Arc::new(samples::stream(1, "a", &["k"]));
        let view = view(2, "v", "a");
        BTreeMap::from([("a".to_owned(), stream), ("v".to_owned(), view)])
    }

    fn meaning(objects: &BTreeMap<String, Arc<CatalogObject>>) -> Vec<(&str, &str)> {
        let renamed = objects["v"].renamed.iter();
        renamed.map(|(a, b)| (a.as_str(), b.as_str())).collect()
    }

    #[test]
    fn what_reads_a_renamed_relation_goes_on() {
        let mut all = objects();
        rename(&mut all, "a", "b");
        assert_eq!(all["b"].kept_name(), "a");
        assert_eq!(meaning(&all), [("a", "b")]);
        let Definition::View(view) = &all["v"].definition else {
            panic!("a view");
        };
        assert_eq!(view.depends_on, ["b"]);
        assert_eq!(view.versions, BTreeMap::from([("b".to_owned(), 1)]));
        rename(&mut all, "b", "c");
        assert_eq!(meaning(&all), [("a", "c")]);
        // And back: nothing is left of it.
        rename(&mut all, "c", "a");
        assert_eq!(all, objects());
    }

    #[test]
    fn two_relations_exchange_their_names() {
        let mut all = objects();
        all.insert("b".into(), Arc::new(samples::stream(3, "b", &["k"])));
        rename(&mut all, "a", "x");
        rename(&mut all, "b", "a");
        rename(&mut all, "x", "b");
        assert_eq!((all["a"].oid, all["a"].kept_name()), (3, "b"));
        assert_eq!((all["b"].oid, all["b"].kept_name()), (1, "a"));
        assert_eq!(meaning(&all), [("a", "b")]);
    }

    #[test]
    fn a_name_that_is_kept_by_another_one_is_not_given_twice() {
        let mut catalog = CatalogSnapshot::default();
        *catalog.parts_mut().objects = objects();
        assert_eq!(catalog.kept_as_of_new("n", 9), None);
        rename(catalog.parts_mut().objects, "a", "b");
        assert_eq!(catalog.kept_as_of_new("a", 9), Some("a#9".to_owned()));
        // What takes its place is kept where it was.
        assert_eq!(catalog.kept_as_of_new("b", 9), Some("a".to_owned()));
        assert_eq!(catalog.shown_name("a"), "b");
        let known = catalog.as_kept(&catalog.object("v").unwrap().clone());
        assert_eq!(depends_on(&known.definition).collect::<Vec<_>>(), ["a"]);
    }
}
