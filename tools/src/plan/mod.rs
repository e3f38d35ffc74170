//! `scr plan`: how to write checkpoints on a machine, so that most of the time brings the job forward.
//!
//! - `forms`: numbers with their units
//! - `single`: one plan by the published model
//! - `site`: the description of a machine
//! - `candidates`: the plans to choose from
//! - `report`: everything that is said of the best one; `text`, `html`: for people

mod candidates;
mod forms;
mod html;
mod report;
mod single;
mod site;
mod text;

use crate::environment;
use crate::output::{or_show_error, show, Answer};
use anyhow::{bail, Context, Result};
use clap::Args;
use report::{Report, Simulation};
use scr_plugin_api::paths_in;
use serde_json::json;
use site::Site;
use std::fs;
use std::path::{Path, PathBuf};

/// Text below the help.
pub(crate) const EXIT_CODES: &str = "\
The model is that of A. Moody, G. Bronevetsky, K. Mohror and B. R. de Supinski, \"Design, Modeling, and Evaluation of a Scalable \
Multi-level Checkpointing System\" (2010). The page planning.md of the documentation explains the files.

Exit codes: 0 printed, 1 no plan brings the job forward, 2 error.";

/// Which machine, and what to say of it.
#[derive(Args)]
pub(crate) struct PlanArgs {
    /// A file that describes a machine, or the name of one that comes with scr
    #[arg(value_name = "MACHINE", required_unless_present = "model", conflicts_with = "model")]
    machine: Option<PathBuf>,
    /// Print the efficiency of one plan by the published model. The file has a table `[[level]]` for each level of checkpoints
    #[arg(long, value_name = "FILE", requires = "interval", requires = "counts")]
    model: Option<PathBuf>,
    /// For --model: seconds of computing between two checkpoints
    #[arg(long, value_name = "SECONDS", requires = "model", conflicts_with = "machine", value_parser = interval)]
    interval: Option<f64>,
    /// For --model: how many checkpoints of each level are taken between two of the next level, from the lowest level up; the
    /// last number is 1
    #[arg(
        long,
        value_name = "L1,L2,..,1",
        requires = "model",
        conflicts_with = "machine",
        value_delimiter = ','
    )]
    counts: Vec<u32>,
    /// Let a job run with this plan, with exponential and with Weibull gaps between failures
    #[arg(long)]
    simulate: bool,
    /// The shape of the Weibull distribution; below 1 failures come in bursts
    #[arg(long, value_name = "SHAPE", requires = "simulate", default_value_t = 0.7, value_parser = shape)]
    shape: f64,
    /// How long that job runs [default: until about 200,000 failures]
    #[arg(long, value_name = "YEARS", requires = "simulate", value_parser = years)]
    years: Option<f64>,
    /// The seed of its random numbers
    #[arg(long, value_name = "N", requires = "simulate", default_value_t = 1)]
    seed: u64,
    /// Write everything as one page that needs no network
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &PlanArgs) -> Result<Answer> {
    let answer = match (&args.model, &args.machine) {
        (Some(file), _) => run_model(args, file),
        (None, Some(machine)) => run_machine(args, machine),
        (None, None) => bail!("name a machine"),
    };
    or_show_error(args.json, answer)
}

fn run_model(args: &PlanArgs, file: &Path) -> Result<Answer> {
    let machine = single::read(file, &read(file)?)?;
    let plan = single::plan(args, machine.levels().len())?;
    let forecast = machine.forecast(&plan)?;
    let simulated = match simulation(args) {
        Some(simulation) => simulation.run(&machine, &plan)?,
        None => Vec::new(),
    };
    let mut json = json!({ "efficiency": forecast.efficiency });
    if !simulated.is_empty() {
        json["simulated"] = simulated.iter().map(report::Simulated::json).collect();
    }
    let text = format!("efficiency: {:.6}\n{}", forecast.efficiency, text::simulated(&simulated).text());
    show(args.json, json, text)?;
    Ok(Answer::Yes)
}

fn run_machine(args: &PlanArgs, machine: &Path) -> Result<Answer> {
    let file = find(machine)?;
    let site = Site::read(&file, &read(&file)?)?;
    let report = Report::new(site, simulation(args).as_ref())?;
    if let Some(page) = &args.html {
        fs::write(page, html::page(&report)).with_context(|| format!("cannot write {}", page.display()))?;
    }
    show(args.json, report.json(), text::report(&report))?;
    Ok(Answer::from(report.best().efficiency > 0.0))
}

fn simulation(args: &PlanArgs) -> Option<Simulation> {
    args.simulate.then_some(Simulation { shape: args.shape, years: args.years, seed: args.seed })
}

/// The folder of machines in an installation.
const MACHINES: &str = "share/scr/machines";

/// The file of a machine: one that comes with scr by its name alone.
fn find(machine: &Path) -> Result<PathBuf> {
    let is_name = machine.components().count() == 1 && machine.extension().is_none();
    let folder = environment::env()?.install_dir.map(|dir| dir.join(MACHINES));
    let (Some(folder), true, false) = (folder, is_name, machine.exists()) else {
        return Ok(machine.to_owned());
    };
    let file = folder.join(machine).with_extension("toml");
    if file.exists() {
        return Ok(file);
    }
    let files = paths_in(&folder).unwrap_or_default();
    let names = files.iter().filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()));
    let names: Vec<String> = names.collect();
    let name = machine.display();
    match &names[..] {
        [] => bail!("there is no file {name}, and no machine of that name in {}", folder.display()),
        names => {
            bail!("there is no file {name}, and no machine of that name; there are {}", names.join(", "))
        }
    }
}

fn read(file: &Path) -> Result<String> {
    crate::machine::read_text(file).with_context(|| format!("cannot read {}", file.display()))
}

fn interval(text: &str) -> Result<f64, String> {
    number(text, 0.0, 1e12).ok_or_else(|| "not a number of seconds from 0 to 1e12".to_owned())
}

fn shape(text: &str) -> Result<f64, String> {
    number(text, 0.1, 10.0).ok_or_else(|| "not a number from 0.1 to 10".to_owned())
}

fn years(text: &str) -> Result<f64, String> {
    number(text, 1e-3, 1e9).ok_or_else(|| "not a number of years from 0.001 to 1e9".to_owned())
}

fn number(text: &str, least: f64, most: f64) -> Option<f64> {
    text.parse().ok().filter(|number| (least..=most).contains(number))
}
