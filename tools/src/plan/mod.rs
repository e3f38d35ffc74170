//! `scr plan`: how to write checkpoints on a machine, so that most of the time brings the job forward.
//!
//! - `site`: the description of a machine
//! - `report`: the plans to choose from, and everything that is said of the best one; `text`, `html`: for people

mod html;
mod report;
mod site;
mod text;

use crate::page::grouped;
use crate::prelude::*;
use report::{Report, Simulation};
use scr_config::document::Document;
use scr_plan::{Level, Machine, Plan, Recovery, MOST_LEVELS};
use site::{rate, seconds, Site};

/// Which machine, and what to say of it.
#[derive(Args)]
pub(crate) struct PlanArgs {
    /// A file that describes a machine, or the name of one that comes with scr
    /// [default: list those]
    #[arg(value_name = "MACHINE", conflicts_with = "model")]
    machine: Option<PathBuf>,
    /// Print the efficiency of one plan by the published model. The file has a table `[[level]]` for each level of checkpoints
    #[arg(long, value_name = "FILE", requires = "interval", requires = "counts")]
    model: Option<PathBuf>,
    /// For --model: seconds of computing between two checkpoints
    #[arg(long, value_name = "SECONDS", requires = "model", conflicts_with = "machine", value_parser = number(" of seconds", 0.0, 1e12))]
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
    #[command(flatten)]
    simulation: Simulation,
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
        (None, None) => list(args.json),
    };
    or_show_error(args.json, answer)
}

fn run_model(args: &PlanArgs, file: &Path) -> Result<Answer> {
    let machine = machine_of(file, &read(file)?)?;
    let plan = plan_of(args, machine.levels().len())?;
    let efficiency = machine.forecast(&plan)?;
    let simulated = args.simulation.run(&machine, &plan)?;
    let mut json = json!({ "efficiency": efficiency });
    if !simulated.is_empty() {
        json["simulated"] = simulated.iter().map(report::simulation).collect();
    }
    let text = format!("efficiency: {:.6}\n{}", efficiency, text::simulated(&simulated).text());
    show(args.json, json, text, true)
}

fn run_machine(args: &PlanArgs, machine: &Path) -> Result<Answer> {
    let file = find(machine)?;
    let site = Site::read(&file, &read(&file)?)?;
    let report = Report::new(site, &args.simulation)?;
    if let Some(page) = &args.html {
        fs::write(page, html::of(&report)?).or_cannot("write", page)?;
    }
    show(args.json, report.json(), text::report(&report), report.best().efficiency > 0.0)
}

/// The folder of machines in an installation.
const MACHINES: &str = "share/scr/machines";

/// Lists the machines that come with scr.
fn list(as_json: bool) -> Result<Answer> {
    let folder = environment::env()?.install_dir.unwrap_or_default().join(MACHINES);
    let mut sites = Vec::new();
    for file in paths_in(&folder).unwrap_or_default() {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        sites.push((name, Site::read(&file, &read(&file)?)?));
    }
    ensure!(!sites.is_empty(), "there is no machine in {}; name a file that describes one", folder.display());
    let rows = sites.iter().map(|(name, site)| [name.clone(), grouped(site.nodes as f64), site.name.clone()]);
    let text = Table::of(&["MACHINE", "NODES", "WHAT IT IS"], rows).text();
    let json =
        sites.iter().map(|(name, site)| json!({ "machine": name, "nodes": site.nodes, "name": site.name }));
    show(as_json, json.collect::<Vec<_>>().into(), text, true)
}

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
    let names = joined(files.iter().filter_map(|path| Some(path.file_stem()?.to_string_lossy())), ", ");
    let what = format!("there is no file {}, and no machine of that name", machine.display());
    ensure!(!names.is_empty(), "{what} in {}", folder.display());
    bail!("{what}; there are {names}")
}

fn read(file: &Path) -> Result<String> {
    crate::machine::read_text(file).or_cannot("read", file)
}

/// Reads the number of an option, which is one of something.
fn number(what: &'static str, least: f64, most: f64) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| match most {
            1e6.. => format!("not a number{what} from {least} to {most:e}"),
            _ => format!("not a number{what} from {least} to {most}"),
        })
    }
}

/// The machine of a file with `[[level]]` tables, from the lowest level to the highest.
fn machine_of(path: &Path, text: &str) -> Result<Machine> {
    let document = Document { path, text };
    let table = document.parse()?;
    let root = document.root(&table).only(&["level"])?;
    let mut levels = Vec::new();
    for section in root.sections("level")? {
        let section = section.only(&["cost", "rate", "recover"])?;
        let write = section.required("cost", &seconds())?;
        let recover = section.optional("recover", &seconds())?.unwrap_or(write);
        levels.push(Level { write, recover, hidden: 0.0, rate: section.required("rate", &rate())? });
    }
    let what = "there is no [[level]]; each has a `cost' in seconds and a `rate' in failures per second";
    ensure!(!levels.is_empty(), root.error(what));
    ensure!(
        levels.len() <= MOST_LEVELS,
        root.error(format_args!("there are {} [[level]] tables; the most is {MOST_LEVELS}", levels.len()))
    );
    Ok(Machine::new(levels, Recovery::OfCheckpoint).map_err(|error| root.error(error))?)
}

/// The plan of the options. The last count is the one of the highest level, which ends the pattern.
fn plan_of(args: &PlanArgs, levels: usize) -> Result<Plan> {
    let (last, counts) = args.counts.split_last().map_or((0, &[][..]), |(last, counts)| (*last, counts));
    let given = args.counts.len();
    ensure!(
        given == levels,
        "--counts has {given} numbers; the machine has {levels} levels, so give {levels} of them"
    );
    ensure!(last == 1, "--counts ends with {last}; it must end with 1, for the checkpoint of the highest level that ends a pattern");
    Ok(Plan { interval: args.interval.unwrap_or(0.0), counts: counts.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        machine_of(Path::new("m.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn the_levels_of_a_file_are_read_from_the_lowest() {
        let machine = machine_of(
            Path::new("m"),
            "[[level]]\ncost = 15\nrate = 8.54e-7\n[[level]]\ncost = \"30m\"\nrate = 2e-7\nrecover = 7\n",
        );
        let levels = machine.unwrap().levels().to_vec();
        assert_eq!((levels[0].write, levels[0].recover, levels[0].rate), (15.0, 15.0, 8.54e-7));
        assert_eq!((levels[1].write, levels[1].recover), (1800.0, 7.0));
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_with_its_line() {
        let cases = [
            ("", "m.toml:1: there is no [[level]]; each has a `cost' in seconds and a `rate' in failures per second"),
            ("level = 3", "m.toml:1: `level' is 3; it must be tables [[level]]"),
            ("level = [3]", "m.toml:1: `level' is [3]; it must be tables [[level]]"),
            ("[[level]]\ncost = 1\n", "m.toml:1: the key `level.rate' is missing: failures per second"),
            ("[[level]]\nrate = 1e-6\n\n[[level]]\n", "m.toml:1: the key `level.cost' is missing: "),
            ("[[level]]\ncsot = 1\n", "m.toml:2: unknown key `level.csot'; did you mean `cost'?"),
            ("[[level]]\nbananas = 1\n", "m.toml:2: unknown key `level.bananas'; known are cost, rate, recover"),
            ("\nlevels = 3", "m.toml:2: unknown key `levels'; did you mean `level'?"),
            ("[[level]]\ncost = -1\nrate = 1e-6", "m.toml:2: `level.cost' is -1; it must be seconds, "),
            ("[[level]]\ncost = nan\nrate = 1e-6", "m.toml:2: `level.cost' is nan; it must be seconds, "),
            ("[[level]]\ncost = inf\nrate = 1e-6", "m.toml:2: `level.cost' is inf; it must be seconds, "),
            ("[[level]]\ncost = 1e300\nrate = 1e-6", "m.toml:2: `level.cost' is 1e300; it must be seconds, "),
            ("[[level]]\ncost = \"soon\"\nrate = 1e-6", "m.toml:2: `level.cost' is \"soon\"; it must be seconds, "),
            ("[[level]]\ncost = 1\nrate = true", "m.toml:3: `level.rate' is true; it must be failures per second, "),
            ("[[level]]\ncost = 1\nrate = 0", "m.toml:1: the rates of all levels are 0; "),
            ("[[level]\ncost = 1", "m.toml:1: "),
            ("x = ", "m.toml:1: "),
        ];
        for (text, expected) in cases {
            let error = error(text);
            assert!(error.starts_with(expected), "{text:?}: {error}");
            assert!(!error.contains('\n'), "{error:?}");
        }
        let many = "[[level]]\ncost = 1\nrate = 1e-6\n".repeat(9);
        assert_eq!(error(&many), "m.toml:1: there are 9 [[level]] tables; the most is 8");
    }
}
