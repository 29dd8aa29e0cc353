//! A table as Parquet: one row group, compressed with Snappy.
//!
//! Integers are unsigned 64-bit, numbers optional doubles, texts UTF-8. The file's key-value metadata describes it:
//! `fl.schema`, `fl.table`, `fl.run`, `fl.instance`, `fl.chain`, and `fl.columns`, a JSON object of each column's type, unit and
//! meaning.

use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

use crate::error::Error;
use crate::forms::json::{Abouts, object_json};
use crate::report::SCHEMA;
use crate::report::run::Run;
use crate::table::Table;
use crate::table::column::{Column, Values};

/// Writes a table of a run. `name`: the name of the table, for the metadata.
///
/// # Errors
/// `Form` if there is no memory for it.
pub fn parquet(run: &Run, name: &str, table: &Table) -> Result<Vec<u8>, Error> {
    let columns = object_json(&Abouts(&table.columns))?;
    let metadata = [
        ("fl.schema", SCHEMA.to_string()),
        ("fl.table", name.to_owned()),
        ("fl.run", run.name.clone()),
        ("fl.instance", run.instance.clone()),
        ("fl.chain", run.chain.clone()),
        ("fl.columns", columns),
    ];
    let metadata = metadata.map(|(key, value)| KeyValue::new(key.to_owned(), value));
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(format!("fl-report {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(metadata.to_vec()))
        .build();
    write(table, properties).map_err(Error::form("Parquet"))
}

fn write(table: &Table, properties: WriterProperties) -> Result<Vec<u8>, ParquetError> {
    let fields = table.columns.iter().map(field).collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("report").with_fields(fields).build()?;
    let mut out = Vec::new();
    let mut file = SerializedFileWriter::new(&mut out, Arc::new(schema), Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    for column in &table.columns {
        if let Some(mut writer) = group.next_column()? {
            values(&mut writer, &column.values)?;
            writer.close()?;
        }
    }
    group.close()?;
    file.close()?;
    Ok(out)
}

fn field(column: &Column) -> Result<Arc<Type>, ParquetError> {
    let (physical, logical, repetition) = match column.values {
        Values::Integers(_) => (
            Physical::INT64,
            Some(LogicalType::integer(64, false)),
            Repetition::REQUIRED,
        ),
        Values::Numbers(_) => (Physical::DOUBLE, None, Repetition::OPTIONAL),
        Values::Flags(_) => (Physical::BOOLEAN, None, Repetition::REQUIRED),
        Values::Texts(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String), Repetition::REQUIRED),
    };
    let builder = Type::primitive_type_builder(&column.name, physical)
        .with_logical_type(logical)
        .with_repetition(repetition);
    builder.build().map(Arc::new)
}

fn values(writer: &mut SerializedColumnWriter<'_>, values: &Values) -> Result<usize, ParquetError> {
    match values {
        Values::Integers(values) => {
            let signed: Vec<i64> = values.iter().map(|value| value.cast_signed()).collect();
            writer.typed::<Int64Type>().write_batch(&signed, None, None)
        }
        Values::Numbers(values) => {
            let there: Vec<f64> = values.iter().flatten().copied().collect();
            let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
            writer.typed::<DoubleType>().write_batch(&there, Some(&levels), None)
        }
        Values::Flags(values) => writer.typed::<BoolType>().write_batch(values, None, None),
        Values::Texts(values) => {
            let texts: Vec<ByteArray> = values.iter().map(|text| ByteArray::from(text.as_str())).collect();
            writer.typed::<ByteArrayType>().write_batch(&texts, None, None)
        }
    }
}
