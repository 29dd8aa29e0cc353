//! Named metrics as columns of a table: as many as there are names.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::table::column::{Column, Values};
use crate::table::line::{Columns, Head, Source};

/// Values of named metrics. In a table each name is a column, `PREFIX/NAME`, with the name of the field as prefix; a line without
/// the metric has no value there.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Measures(pub BTreeMap<String, f64>);

impl Columns for Measures {
    fn columns<'a>(head: &Head, fields: impl Iterator<Item = &'a Self> + Clone, out: &mut Vec<Column>)
    where
        Self: 'a,
    {
        if !head.is_wanted() {
            return;
        }
        let names: BTreeSet<&str> = fields
            .clone()
            .flat_map(|line| line.0.keys())
            .map(String::as_str)
            .collect();
        out.extend(names.into_iter().map(|name| {
            let values = fields.clone().map(|line| line.0.get(name).copied());
            Column {
                name: Cow::Owned(format!("{}/{name}", head.name())),
                unit: head.unit,
                about: head.about(),
                values: Values::Numbers(values.map(|value| value.filter(|value| value.is_finite())).collect()),
            }
        }));
    }

    fn read(head: &Head, source: &mut Source) -> Result<Vec<Self>, String> {
        let prefix = format!("{}/", head.name());
        let mut lines = vec![Self::default(); source.len()];
        for (column, name) in source.named(&prefix) {
            let values: Vec<Option<f64>> = source.take(&column)?;
            for (line, value) in lines.iter_mut().zip(values) {
                line.0.extend(value.map(|value| (name.clone(), value)));
            }
        }
        Ok(lines)
    }
}
