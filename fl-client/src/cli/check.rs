//! `fl-client check`: everything that can be found out without the server.

use std::path::PathBuf;

use fl_cli::out;

use crate::client_file::ClientFile;
use crate::error::Error;
use crate::learners;

/// Check a configuration: keys, certificates, learners, data.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The client's configuration.
    config: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let file = ClientFile::read(&args.config)?;
    out::line(format_args!(
        "{}: every key is known and in range",
        args.config.display()
    ))?;
    let mut wrong = Vec::new();
    let fault = |config: &crate::ClientConfig| {
        crate::identity::own_fault(config).or_else(|| {
            let usable = fl_proto::client_tls(&config.authority, &config.own).err();
            usable.map(|error| format!("`certificate` and `key`: {error}"))
        })
    };
    match crate::check_certificates(&file.config).map(|ends| (ends, fault(&file.config))) {
        Ok((_, Some(fault))) => wrong.push(fault),
        Ok((ends, None)) => out::line(format_args!("certificate: good until {}", ends.date()))?,
        Err(error) => wrong.push(error.to_string()),
    }
    if file.tasks.is_empty() {
        wrong.push("no [tasks.NAME]: the client could take part in nothing".to_owned());
    }
    for (name, entry) in &file.tasks {
        let loaded = entry.data.load().map_err(anyhow::Error::from);
        let built = loaded.and_then(|data| {
            let (train, test) = (data.train.len(), data.test.len());
            let learner = learners::find(&entry.learner)?.build(file.device, data)?;
            Ok((train, test, learner.layout().len()))
        });
        match built {
            Ok((train, test, parameters)) => out::line(format_args!(
                "task {name}: {}, {parameters} parameters; {train} examples to train on, {test} held out",
                entry.learner
            ))?,
            Err(error) => wrong.push(format!("task {name}: {error:#}")),
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(Error::Config(wrong.join("\n       ")).into())
    }
}
