//! One device of a fleet: its enrollment, its process, its link, and what happens to it.

use anyhow::{Context as _, ensure};
use time::OffsetDateTime;

use super::link::Link;
use crate::dice::Dice;
use crate::ground::{self, Ground, LOOK_EVERY};
use crate::process::Process;

/// Looks at a process that has to end by itself.
const LOOKS: u32 = 600;

/// What happens to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Misfortune {
    /// SIGTERM; it returns.
    Stopped,
    /// SIGKILL; it returns.
    Killed,
    /// SIGSTOP; SIGCONT later.
    Asleep,
    Cut,
    /// Its connections break, and it gets none for a while.
    Offline,
    /// The operator revokes it, and restores it later.
    Revoked,
    /// It is switched off until its certificate has expired; the operator enrolls it again.
    Expired,
}

/// In the order of the dice: most of them are short.
const MISFORTUNES: [Misfortune; 12] = [
    Misfortune::Stopped,
    Misfortune::Stopped,
    Misfortune::Killed,
    Misfortune::Killed,
    Misfortune::Asleep,
    Misfortune::Asleep,
    Misfortune::Cut,
    Misfortune::Cut,
    Misfortune::Offline,
    Misfortune::Revoked,
    Misfortune::Revoked,
    Misfortune::Expired,
];

impl Misfortune {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        MISFORTUNES[dice.below(MISFORTUNES.len() as u64) as usize]
    }
}

#[derive(Debug)]
pub(super) struct Device {
    pub(super) name: String,
    number: u32,
    link: Link,
    process: Option<Process>,
    /// What it suffers, and the round after which it recovers.
    absent: Option<(Misfortune, u64)>,
}

impl Device {
    /// Enrolls a device by a line of the operator and starts it.
    pub(super) async fn enroll(ground: &Ground, number: u32, lifetime: u64) -> anyhow::Result<Self> {
        let mut device = Self {
            name: format!("device-{number:02}"),
            number,
            link: Link::to(&ground.main).await?,
            process: None,
            absent: None,
        };
        device.take_line(ground, lifetime, false).await?;
        ground.give_task(&device.name, device.number)?;
        device.start(ground)?;
        Ok(device)
    }

    /// `server enroll` and `client enroll`.
    async fn take_line(&self, ground: &Ground, lifetime: u64, again: bool) -> anyhow::Result<()> {
        let lifetime = format!("{lifetime}s");
        let again: &[&str] = if again { &["--again"] } else { &[] };
        let enroll = ["server", "enroll", &self.name, "--fed", "fed", "--lifetime", &lifetime];
        let line = ground.token(&[&enroll, again].concat()).await?;
        let enroll = ["client", "enroll", &line, "--to", &self.name];
        ground.done(&[&enroll, again].concat()).await?;
        Ok(())
    }

    fn start(&mut self, ground: &Ground) -> anyhow::Result<()> {
        self.process = Some(ground.client(&self.name, &["--server", &self.link.address])?);
        Ok(())
    }

    pub(super) fn is_present(&self) -> bool {
        self.absent.is_none()
    }

    /// Has the device suffer; it recovers once round `until` has closed. Returns the errors.
    pub(super) async fn suffer(
        &mut self,
        what: Misfortune,
        until: u64,
        ground: &Ground,
    ) -> anyhow::Result<Vec<String>> {
        let mut broken = Vec::new();
        match what {
            Misfortune::Stopped => {
                if let Some(process) = self.process.take() {
                    broken = process.stop().await.with_context(|| self.name.clone())?;
                }
            }
            Misfortune::Killed | Misfortune::Expired => {
                if let Some(mut process) = self.process.take() {
                    broken = process.kill().await?;
                }
            }
            Misfortune::Asleep => self.process()?.signal("STOP").await?,
            Misfortune::Cut => {
                self.link.cut();
                return Ok(broken);
            }
            Misfortune::Offline => self.link.set_up(false),
            Misfortune::Revoked => {
                ground
                    .done(&[
                        "server", "clients", "revoke", &self.name, "--why", "churn", "--fed", "fed",
                    ])
                    .await?;
            }
        }
        self.absent = Some((what, until));
        Ok(broken)
    }

    /// Has the device recover if round `closed` was the one to wait for. Returns whether it was enrolled again.
    pub(super) async fn recover(&mut self, closed: u64, ground: &Ground, lifetime: u64) -> anyhow::Result<bool> {
        let Some((what, until)) = self.absent else {
            return Ok(false);
        };
        let due = match what {
            Misfortune::Expired => self.is_expired(ground)?,
            _ => closed >= until,
        };
        if !due {
            return Ok(false);
        }
        self.absent = None;
        match what {
            Misfortune::Stopped | Misfortune::Killed | Misfortune::Expired => self.come_back(ground, lifetime).await,
            Misfortune::Asleep => {
                self.process()?.signal("CONT").await?;
                Ok(false)
            }
            Misfortune::Cut => Ok(false),
            Misfortune::Offline => {
                self.link.set_up(true);
                Ok(false)
            }
            Misfortune::Revoked => {
                self.end_after("is revoked").await?;
                ground
                    .done(&["server", "clients", "restore", &self.name, "--fed", "fed"])
                    .await?;
                self.come_back(ground, lifetime).await
            }
        }
    }

    /// Starts the device; enrolls it again before, if its certificate has expired.
    async fn come_back(&mut self, ground: &Ground, lifetime: u64) -> anyhow::Result<bool> {
        let expired = self.is_expired(ground)?;
        if expired {
            self.take_line(ground, lifetime, true).await?;
        }
        self.start(ground)?;
        Ok(expired)
    }

    /// Enrolls a present device again if its certificate has expired, and returns whether. Its process must not end by itself.
    pub(super) async fn look(&mut self, ground: &Ground, lifetime: u64) -> anyhow::Result<bool> {
        if !self.is_present() {
            return Ok(false);
        }
        let said = self.process()?.last();
        ensure!(
            !self.process()?.is_over()?,
            "{} ended by itself; it said: {said}",
            self.name
        );
        if !said.contains("expired") || !self.is_expired(ground)? {
            return Ok(false);
        }
        self.kill().await?;
        self.come_back(ground, lifetime).await
    }

    /// Waits until the process has said why it is not connected, and ends it: it asks again only after an hour.
    async fn end_after(&mut self, said: &str) -> anyhow::Result<()> {
        for _ in 0..LOOKS {
            if self.process()?.last().contains(said) {
                return self.kill().await;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let last = self.process()?.last();
        anyhow::bail!("{} does not say {said:?}; it said: {last}", self.name)
    }

    async fn kill(&mut self) -> anyhow::Result<()> {
        let mut process = self.process.take().context("the device has no process")?;
        let wrong = process.kill().await?;
        ensure!(wrong.is_empty(), "{}: {wrong:?}", self.name);
        Ok(())
    }

    pub(super) async fn stop(&mut self) -> anyhow::Result<Vec<String>> {
        match self.process.take() {
            Some(process) => process.stop().await.with_context(|| self.name.clone()),
            None => Ok(Vec::new()),
        }
    }

    fn is_expired(&self, ground: &Ground) -> anyhow::Result<bool> {
        let text = ground::read(&ground.path(&self.name).join("client.pem"))?;
        Ok(fl_proto::expiry(&text)? <= OffsetDateTime::now_utc())
    }

    fn process(&mut self) -> anyhow::Result<&mut Process> {
        self.process.as_mut().context("the device has no process")
    }
}
