//! The task that a command binds in a new client.toml.

/// The learner that an option gives, as in client.toml: a table if it begins with `{`, otherwise a name.
///
/// # Errors
/// If it is not one table.
pub fn learner(option: &str, text: &str) -> Result<toml::Value, String> {
    match text.trim_start().starts_with('{') {
        true => one_table(option, text),
        false => Ok(text.into()),
    }
}

/// The table that an option gives, as in client.toml.
///
/// # Errors
/// If it is not one table; the error names the option.
pub fn one_table(option: &str, text: &str) -> Result<toml::Value, String> {
    let table: Result<toml::Table, _> = toml::from_str(&format!("value = {text}"));
    let mut table = table.map_err(|error| format!("{option} `{text}`: {}", error.message()))?;
    let value = table
        .remove("value")
        .filter(|value| value.is_table() && table.is_empty());
    value.ok_or_else(|| format!("{option} `{text}`: must be one table, as in client.toml"))
}

/// The table `[tasks.NAME]`. A `learner` that begins with `{` is a table, any other a name.
///
/// # Errors
/// If learner or data are not one value each, or the learner needs data and has none, or the other way round.
pub fn table(task: &str, learner: &str, data: Option<&str>) -> Result<String, String> {
    let learner = match learner.trim_start().starts_with('{') {
        true => learner.to_owned(),
        false => toml::Value::from(learner).to_string(),
    };
    let data_line = data.map(|data| format!("data = {data}\n")).unwrap_or_default();
    let text = format!("[tasks.{}]\nlearner = {learner}\n{data_line}", toml::Value::from(task));
    let given = data.map(|data| format!(", `--data {data}`")).unwrap_or_default();
    let wrong = |why: &str| format!("`--learner {learner}`{given}: {why}; give them as in client.toml");
    let mut file: toml::Table = text.parse().map_err(|error: toml::de::Error| wrong(error.message()))?;
    let tasks = file.remove("tasks").unwrap_or_else(|| false.into());
    let is_alone = file.is_empty() && tasks.as_table().is_some_and(|tasks| tasks.len() == 1);
    let table = tasks.get(task).and_then(toml::Value::as_table);
    let table = table
        .filter(|table| is_alone && table.len() == 1 + usize::from(data.is_some()))
        .ok_or_else(|| wrong("must be one value each"))?;
    let learner = &table["learner"];
    let is_script = learner.get("command").or(learner.get("attach")).is_some();
    match table.get("data") {
        None if !is_script => Err("a built-in learner needs `--data`, as in client.toml".to_owned()),
        Some(_) if is_script => Err("a script has its own data: omit `--data`".to_owned()),
        Some(data) if !data.is_table() => Err(wrong("data must be a table")),
        _ => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_has_its_own_data_and_a_built_in_learner_needs_some() {
        let data = "{ builtin = { client = 3 } }";
        let built_in = "[tasks.\"all digits\"]\nlearner = \"mlp\"\ndata = { builtin = { client = 3 } }\n";
        assert_eq!(table("all digits", "mlp", Some(data)).unwrap(), built_in);
        let script = "{ command = ['python3', 'train.py'] }";
        assert!(
            table("a", script, None)
                .unwrap()
                .ends_with(&format!("learner = {script}\n"))
        );
        assert!(table("a", "{ attach = 'trainer.sock' }", None).is_ok());
        for (learner, data, why) in [
            (script, Some(data), "a script has its own data"),
            ("mlp", None, "needs `--data`"),
            ("{ name = ", None, "`--learner { name = `: "),
            ("mlp", Some("{ builtin = "), "`--data { builtin = `: "),
            ("mlp", Some("7"), "data must be a table"),
            ("mlp", Some("{}\nserver = \"x\""), "one value each"),
            ("mlp", Some("{}\n[tasks.other]\nlearner = \"x\""), "one value each"),
            ("mlp", Some("{}\nlearner = \"cnn\""), "duplicate key"),
        ] {
            let told = table("a", learner, data).unwrap_err();
            assert!(told.contains(why), "{learner} {data:?}: {told}");
        }
    }
}
