//! `scr status` of a job at work, of one that has died, of one whose node is gone, and of one that has finished.

use scr_tests::{needs_namespaces, on_any_mpi, Cluster, Mpi, Program};
use std::process::Output;

/// The answer of the command on a machine that is no node, from what the nodes have.
fn status(cluster: &Cluster, mpi: Mpi, arguments: &[&str]) -> Output {
    let output = cluster.scr(mpi, &[&["status"], arguments].concat());
    let text = text(&output);
    assert!(output.status.code().is_some_and(|code| code < 2), "{text}");
    assert!(text.lines().count() <= 14, "{text}");
    output
}

fn text(output: &Output) -> String {
    let all = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&all).into_owned()
}

/// Panics unless these are among the lines, which may go on.
fn expect(output: &Output, is_safe: bool, lines: &[&str]) {
    let text = text(output);
    assert_eq!(output.status.success(), is_safe, "{text}");
    for line in lines {
        assert!(text.lines().any(|found| found.starts_with(line)), "`{line}' is not there:\n{text}");
    }
}

on_any_mpi! {
    fn status_tells_of_a_job_at_work_then_dead_then_without_a_node_then_finished(mpi: Mpi) {
        needs_namespaces!();
        let mut cluster = Cluster::new(4);
        let gate = cluster.scratch().join("continues");
        let held = format!("start:4:until [ -e {} ]; do sleep 0.1; done", gate.display());
        let job = cluster.job(mpi, 4, Program::CkptTest).args(["--run", &held, "--kill-at", "complete"]);
        let job = job.options(&[("datasets", 5), ("kill-rank", 3), ("kill-dataset", 4)]);
        let mut running = job.env("SCR_FLUSH", 2).start();
        running.wait_for("COMPLETE ckpt.3 0");
        let at_work = status(&cluster, mpi, &[]);
        expect(&at_work, true, &[
            "protected   against the loss of any 1 of 4 nodes (XOR)",
            "in cache    ckpt.3, ",
            "in prefix   ckpt.2, ",
            "lost with   1 node: ",
            "            all nodes, the allocation: ",
            "room        n",
            "next        checkpoint ",
            "as of       now, on 4 nodes",
        ]);
        assert!(text(&at_work).contains("job tests runs, 4 ranks on 4 nodes, for "), "{}", text(&at_work));
        let offline = status(&cluster, mpi, &["--offline"]);
        assert!(text(&offline).contains("in the prefix directory; no node was asked"), "{}", text(&offline));

        std::fs::write(&gate, "").expect("a file can be made");
        running.finish().expect_death();
        let died = status(&cluster, mpi, &[]);
        expect(&died, true, &[
            "protected   against the loss of any 1 of 4 nodes (XOR)",
            "lost with   1 node: nothing more, back to ckpt.3",
            "            all nodes, the allocation: ",
        ]);
        assert!(text(&died).contains("job tests has died, ") && text(&died).contains("\nnext        `scr postrun' saves ckpt.3\n"));

        cluster.lose_node(2);
        let gone = status(&cluster, mpi, &[]);
        expect(&gone, false, &[
            "protected   against nothing: 1 part already lost",
            "lost with   1 node or more: ",
            "as of       now, on 4 nodes",
        ]);
        let inspected = cluster.scr(mpi, &["inspect"]);
        assert!(inspected.status.success() && text(&inspected).contains("ckpt.3  4      1     can be rebuilt"), "{}", text(&inspected));
        assert!(text(&gone).contains(", 1 of 4 parts to be rebuilt"), "{}", text(&gone));

        let again = cluster.job(mpi, 4, Program::CkptTest).on(&[0, 1, 3]).options(&[("datasets", 1)]);
        let again = again.env("SCR_FLUSH", 1).run().expect_success();
        assert_eq!(again.restarted_from(), Some("ckpt.3"));
        let finished = status(&cluster, mpi, &[]);
        expect(&finished, true, &[
            "protected   against the loss of all nodes: it is in the prefix directory",
            "in prefix   ckpt.4, ",
            "lost with   1 node or more: nothing more, back to ckpt.4",
        ]);
        assert!(text(&finished).contains(": job tests has finished\n"), "{}", text(&finished));
    }

    fn status_says_that_one_node_is_no_protection_and_that_bypass_mode_needs_none(mpi: Mpi) {
        needs_namespaces!();
        let mut cluster = Cluster::new(1);
        let dies = [("datasets", 3), ("kill-rank", 1), ("kill-dataset", 3)];
        let job = |cluster: &mut Cluster, bypass: u8| {
            let job = cluster.job(mpi, 2, Program::CkptTest).options(&dies).args(["--kill-at", "start"]);
            job.env("SCR_CACHE_BYPASS", bypass).run().expect_death();
        };
        job(&mut cluster, 0);
        expect(&status(&cluster, mpi, &[]), false, &[
            "protected   against nothing: all ranks are on one node",
            "in prefix   nothing",
            "lost with   1 node or more: all work, as no checkpoint is left",
        ]);
        let mut cluster = Cluster::new(1);
        job(&mut cluster, 1);
        expect(&status(&cluster, mpi, &[]), true, &[
            "protected   against the loss of all nodes: it is in the prefix directory",
            "in cache    nothing: checkpoints go straight to the prefix directory",
            "in prefix   ckpt.2, ",
        ]);
    }
}
