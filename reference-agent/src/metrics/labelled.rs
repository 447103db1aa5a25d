//! Metrics that know their own description.

use std::fmt;

use prometheus_client::{
    metrics::{TypedMetric, counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

/// What a metric is, as METRICS.md has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its full name, as it is scraped.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Names of its labels.
    pub labels: Vec<&'static str>,
    /// Its description, with the unit.
    pub help: &'static str,
}

/// Values by `N` labels. Clones are the same values.
pub struct Labelled<M, const N: usize> {
    names: [&'static str; N],
    family: Values<M>,
}

type Values<M> = Family<Vec<(&'static str, String)>, M, fn() -> M>;

impl<M: Clone, const N: usize> Labelled<M, N> {
    /// The value at these labels, in the order of their names; made at the first call.
    ///
    /// Label values must be of a bounded set: never names of objects.
    pub fn at(&self, values: [&str; N]) -> M {
        let labels = self.names.into_iter().zip(values.map(str::to_owned));
        self.family.get_or_create_owned(&labels.collect())
    }

    /// Forgets all values.
    pub fn clear(&self) {
        self.family.clear();
    }
}

impl<M, const N: usize> Clone for Labelled<M, N> {
    fn clone(&self) -> Self {
        Self {
            names: self.names,
            family: self.family.clone(),
        }
    }
}

impl<M, const N: usize> fmt::Debug for Labelled<M, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Labelled").field(&self.names).finish()
    }
}

/// Builds a registry, and the descriptions beside it.
pub(super) struct Register {
    registry: Registry,
    descriptions: Vec<Description>,
}

impl Register {
    pub(super) fn new() -> Self {
        Self {
            registry: Registry::with_prefix("plumbline"),
            descriptions: Vec::new(),
        }
    }

    pub(super) fn finish(self) -> (Registry, Vec<Description>) {
        (self.registry, self.descriptions)
    }

    /// `_total` is added to the name.
    pub(super) fn counter<const N: usize>(
        &mut self,
        name: &str,
        names: [&'static str; N],
        help: &'static str,
    ) -> Labelled<Counter, N> {
        self.describe(&format!("{name}_total"), "counter", &names, help);
        self.family(
            name,
            names,
            Family::new_with_constructor(Counter::default as fn() -> Counter),
            help,
        )
    }

    pub(super) fn gauge<const N: usize>(
        &mut self,
        name: &str,
        names: [&'static str; N],
        help: &'static str,
    ) -> Labelled<Gauge, N> {
        self.describe(name, "gauge", &names, help);
        self.family(
            name,
            names,
            Family::new_with_constructor(Gauge::default as fn() -> Gauge),
            help,
        )
    }

    /// `buckets`: upper bounds.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        help: &'static str,
        buckets: impl IntoIterator<Item = f64>,
    ) -> Histogram {
        let histogram = Histogram::new(buckets);
        self.describe(name, "histogram", &[], help);
        self.registry
            .register(name, without_stop(help), histogram.clone());
        histogram
    }

    fn family<M, const N: usize>(
        &mut self,
        name: &str,
        names: [&'static str; N],
        family: Values<M>,
        help: &'static str,
    ) -> Labelled<M, N>
    where
        M: TypedMetric
            + Clone
            + prometheus_client::encoding::EncodeMetric
            + fmt::Debug
            + Send
            + Sync
            + 'static,
    {
        self.registry.register(name, without_stop(help), family.clone());
        Labelled { names, family }
    }

    fn describe(&mut self, name: &str, kind: &'static str, labels: &[&'static str], help: &'static str) {
        self.descriptions.push(Description {
            name: format!("plumbline_{name}"),
            kind,
            labels: labels.to_vec(),
            help,
        });
    }
}

/// The library ends the sentence itself.
fn without_stop(help: &'static str) -> &'static str {
    help.trim_end_matches('.')
}
