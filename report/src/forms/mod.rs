//! The forms of a report, one file each. A new form is a file here and its line in [`FORMS`].
//!
//! Forms are made in memory from the report alone: the same report gives the same bytes.

pub(crate) mod csv;
pub(crate) mod form;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod parquet;
pub(crate) mod tensorboard;
pub(crate) mod text;

use crate::error::Error;
use crate::forms::form::{Answer, Asked, Form};

/// All forms, in the order in which help texts and docs list them.
pub static FORMS: &[&Form] = &[
    &text::FORM,
    &json::FORM,
    &csv::FORM,
    &parquet::FORM,
    &tensorboard::FORM,
    &html::FORM,
];

impl Form {
    /// Finds a form by name.
    pub fn named(name: &str) -> Option<&'static Self> {
        FORMS.iter().copied().find(|form| form.name == name)
    }

    /// Refuses an answer that this form cannot show.
    ///
    /// # Errors
    /// `NoForm`, with the forms that can.
    pub fn check(&self, asked: Asked) -> Result<(), Error> {
        if self.shows.contains(&asked) {
            return Ok(());
        }
        let able = FORMS.iter().filter(|form| form.shows.contains(&asked));
        Err(Error::NoForm {
            form: self.name,
            shows: self
                .shows
                .iter()
                .map(|asked| asked.name())
                .collect::<Vec<_>>()
                .join(", "),
            asked: asked.name(),
            able: able.map(|form| form.name).collect::<Vec<_>>().join(", "),
        })
    }

    /// Writes an answer.
    ///
    /// # Errors
    /// `NoForm` if the form cannot show the answer, `Form` if there is no memory for it.
    pub fn write(&self, answer: &Answer<'_>) -> Result<Vec<u8>, Error> {
        self.check(answer.asked())?;
        (self.write)(answer)
    }
}
