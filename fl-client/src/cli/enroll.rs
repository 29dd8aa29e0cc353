//! `fl-client enroll LINE`: makes this device a client of a federation.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use fl_cli::out;
use fl_proto::{ClientId, EnrollmentLine, Role};
use indicatif::ProgressBar;

use super::run as run_client;
use crate::client_file::ClientFile;
use crate::config::ClientConfig;
use crate::enrollment::{ClientFolder, Progress, enroll};
use crate::error::Error;
use crate::identity::Fault;
use crate::named::Learners;

/// Enroll this device: make its key, have the server sign it, and write client.toml. May be repeated after any failure.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The line that `fl-server enroll` printed: `fl1:..`.
    line: String,
    /// Folder for key, certificate and client.toml; created if it is missing.
    #[arg(long, default_value = ".")]
    to: PathBuf,
    /// The name to ask for, if the line allows several.
    #[arg(long)]
    name: Option<ClientId>,
    /// Make a new key and certificate in a folder that has them already.
    #[arg(long)]
    again: bool,
    #[command(flatten)]
    task: TaskArgs,
    /// Run the client after enrollment, until it is stopped.
    #[arg(long)]
    run: bool,
    /// A fault at the N-th write: `abort@N` or `full@N`.
    #[arg(long, hide = true)]
    fault: Option<String>,
}

/// A task to bind in the new client.toml.
#[derive(Debug, clap::Args)]
pub(super) struct TaskArgs {
    /// A task to bind in the new client.toml; `task` in the server's run.toml.
    #[arg(long, requires = "learner")]
    task: Option<String>,
    /// The learner of the task, such as mlp, '{ name = "transformer", layers = 6 }' or '{ command = ["python3", "train.py"] }'.
    #[arg(long, requires = "task")]
    learner: Option<String>,
    /// The data of a built-in learner, as in client.toml, such as '{ builtin = { client = 0 } }'.
    #[arg(long, requires = "task")]
    data: Option<String>,
}

impl Args {
    pub(super) fn runs(&self) -> bool {
        self.run
    }
}

pub(super) fn run(args: &Args, learners: &Arc<dyn Learners>, bar: &ProgressBar) -> anyhow::Result<()> {
    let task = args.task.table(learners.as_ref())?;
    let fault = args
        .fault
        .as_ref()
        .map(|text| text.parse::<Fault>())
        .transpose()
        .map_err(Error::Config)?;
    let folder = ClientFolder::new(&args.to, fault, args.again);
    if let Some(own) = folder.issued()?.filter(|_| !args.again) {
        if let Some(fault) = folder.fault(&own) {
            let folder = args.to.display();
            return Err(Error::Config(format!(
                "{folder} is enrolled already, and {fault}; to enroll it once more, add `--again`"
            ))
            .into());
        }
        out::note(format_args!(
            "{} is enrolled already; `--again` makes a new key",
            args.to.display()
        ));
    } else {
        // A folder that is enrolled needs no line: containers repeat the command at each start, when the line has long expired.
        let line = args.line.parse::<EnrollmentLine>();
        let line = line.map_err(|error| Error::Config(error.to_string()))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the runtime")?;
        let enrolled = enroll(
            &line,
            &folder,
            args.name.as_ref(),
            |server| client_toml(server, task.as_deref()),
            |progress| match progress {
                Progress::Held(words) => out::note(format_args!(
                    "waits for the operator's approval; the operator must see the same words: {words}"
                )),
                Progress::Again(why, delay) => {
                    out::note(format_args!("{why}; trying again in {:.1} s", delay.as_secs_f64()));
                }
            },
        );
        let done = runtime.block_on(enrolled)?;
        out::line(format_args!(
            "enrolled as `{}` until {}, in {}",
            done.name,
            done.expires.date(),
            args.to.display()
        ))?;
    }
    let config = folder.config();
    preflight(&config, learners.as_ref(), args.run)?;
    if let Some(why) = args.task.not_bound(&config, learners.as_ref())? {
        out::note(format_args!("WARNING: {why}"));
    }
    if args.run {
        run_client::run(run_client::Args::of(config), learners, bar)
    } else {
        Ok(())
    }
}

/// Checks what can be checked without training, and prints the next steps. `runs`: whether the client runs now.
pub(super) fn preflight(config: &Path, learners: &dyn Learners, runs: bool) -> anyhow::Result<()> {
    let file = ClientFile::read(config, learners)?;
    if let Some(fault) = file.config.own_fault() {
        return Err(Error::Config(fault).into());
    }
    fl_proto::client_tls(&file.config.authority, &file.config.own)
        .map_err(|error| Error::Config(format!("`certificate` and `key`: {error}")))?;
    let shown = config.display();
    out::line(format_args!("ready: {shown} connects to {}", file.config.server))?;
    let tasks: Vec<_> = file.tasks.keys().map(String::as_str).collect();
    match tasks.as_slice() {
        _ if runs => {}
        _ if file.config.role() == Role::Operator => out::note(format_args!("{}", next_of_operator(&file.config))),
        [] => out::note(format_args!(
            "next: bind a task to a learner and data in {shown}, then\n      fl-client check {shown}\n      fl-client run {shown}"
        )),
        tasks => out::note(format_args!(
            "next: fl-client check {shown}      # tasks: {}\n      fl-client run {shown}",
            tasks.join(", ")
        )),
    }
    Ok(())
}

/// What an operator can do, who takes part in no run.
fn next_of_operator(config: &ClientConfig) -> String {
    let files = config.identity.as_ref();
    let [authority, certificate, key] = files.map_or(
        ["authority.pem", "client.pem", "client.key"].map(String::from),
        |files| [&files.authority, &files.certificate, &files.key].map(|path| path.display().to_string()),
    );
    format!(
        "this certificate is an operator's: it takes part in no run, and the server's page (`admin` in server.toml) accepts it \
         without the token\nnext: curl --cacert {authority} --cert {certificate} --key {key} \\\n      \
         --connect-to fl-server:7071:ADDRESS:7071 https://fl-server:7071/metrics"
    )
}

impl TaskArgs {
    /// The warning if `--task` is not in the client.toml at `path`: it was there before, and nobody's settings are overwritten.
    pub(super) fn not_bound(&self, path: &Path, learners: &dyn Learners) -> Result<Option<String>, Error> {
        let Some(task) = &self.task else { return Ok(None) };
        let bound = ClientFile::read(path, learners)?.tasks.contains_key(task);
        let shown = path.display();
        Ok((!bound).then(|| {
            format!("{shown} existed before and was not changed: add a table [tasks.{task}] with `--learner` and `--data` to it")
        }))
    }

    /// The table of the task; `None` without a task.
    pub(super) fn table(&self, learners: &dyn Learners) -> anyhow::Result<Option<String>> {
        let (Some(task), Some(learner)) = (&self.task, &self.learner) else {
            return Ok(None);
        };
        let table = fl_cli::task::table(task, learner, self.data.as_deref()).map_err(Error::Config)?;
        crate::client_file::check_text(&table, learners).map_err(Error::Config)?;
        Ok(Some(table))
    }
}

/// The commented client.toml, every key at its default but the server. Without a task, the example is a comment.
pub(super) fn client_toml(server: &str, task: Option<&str>) -> String {
    let template = include_str!("../../../configs/client.toml");
    let filled = template.replacen("# server = \"127.0.0.1:7070\"", &format!("server = \"{server}\""), 1);
    let (keys, example) = filled.split_at(filled.find("# One table for each task").unwrap_or(filled.len()));
    let example: String = example
        .lines()
        .map(|line| {
            if line.is_empty() || line.starts_with('#') {
                format!("{line}\n")
            } else {
                format!("# {line}\n")
            }
        })
        .collect();
    format!(
        "{keys}{example}{}",
        task.map_or_else(String::new, |task| format!("\n{task}"))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::named::TrainersOnly;

    fn task(learner: &str, data: Option<&str>) -> anyhow::Result<Option<String>> {
        let args = TaskArgs {
            task: Some("digits of all".to_owned()),
            learner: Some(learner.to_owned()),
            data: data.map(str::to_owned),
        };
        args.table(&TrainersOnly)
    }

    #[test]
    fn a_new_client_toml_has_the_server_and_the_task_and_no_other() {
        let text = client_toml("10.0.0.1:7070", None);
        let table: toml::Table = text.parse().unwrap();
        assert!(!table.contains_key("tasks"), "{text}");
        assert_eq!(table["server"].as_str(), Some("10.0.0.1:7070"));
        let bound = task("{ command = ['sh'] }", None).unwrap();
        let table: toml::Table = client_toml("a:1", bound.as_deref()).parse().unwrap();
        assert!(table["tasks"]["digits of all"]["learner"]["command"].is_array());
        assert_eq!(table["tasks"].as_table().unwrap().len(), 1);
    }

    #[test]
    fn a_task_that_is_none_is_refused() {
        assert!(task("{ command = [\"python3\", \"train.py\"] }", None).is_ok());
        for (learner, data) in [
            ("{ name = ", None),
            ("mlp", Some("{}\nserver = \"x\"")),
            ("no-such-learner", Some("{ builtin = {} }")),
        ] {
            assert!(task(learner, data).is_err(), "{learner} {data:?}");
        }
    }
}
