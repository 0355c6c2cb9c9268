package main

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/plain"
)

type snapshotCmd struct {
	List   snapshotListCmd   `cmd:"" aliases:"ls" help:"Show what the store of checkpoints holds, by session."`
	Verify snapshotVerifyCmd `cmd:"" help:"Read the whole store and say what is damaged."`
	GC     snapshotGCCmd     `cmd:"" name:"gc" help:"Remove checkpoints and packs that no rule keeps; the server also does it by itself."`
}

type snapshotListCmd struct{}

// Run shows the totals of the store and what each session has in it.
func (*snapshotListCmd) Run(e *env) error {
	held, err := ask(e, (*client.Client).Snapshots)
	if err != nil {
		return err
	}
	if e.json {
		return e.print(held)
	}
	var ids []string
	for _, s := range held.Sessions {
		ids = append(ids, string(s.Session))
	}
	var rows [][]string
	for i, short := range plain.Endings(ids) {
		s := held.Sessions[i]
		rows = append(rows, []string{short, strconv.Itoa(s.Checkpoints), strconv.Itoa(s.Packs), plain.Size(s.Bytes), plain.Age(time.Since(s.Newest))})
	}
	if len(rows) > 0 {
		if err := e.table([]string{"SESSION", "CHECKPOINTS", "PACKS", "SIZE", "NEWEST"}, rows); err != nil {
			return err
		}
	}
	return e.say(nil, "%s in %s; unused: %s", count(held.Checkpoints, "checkpoint", "checkpoints"), packs(held.Packs, held.Bytes), packs(held.UnusedPacks, held.UnusedBytes))
}

// packs returns a number of packs with their size.
func packs(n int, bytes int64) string {
	return fmt.Sprintf("%s (%s)", count(n, "pack", "packs"), plain.Size(bytes))
}

type snapshotVerifyCmd struct{}

// Help returns the text that the help shows below the one-line description of the command.
func (*snapshotVerifyCmd) Help() string {
	return `Names the checkpoints that cannot be restored completely, with the files that are lost, and the packs that are missing or damaged. Changes nothing. Ends with 0 if everything is whole, 1 if not.

Examples:
  holdfast snapshot verify
  holdfast snapshot verify --json`
}

// Run verifies the store.
func (*snapshotVerifyCmd) Run(e *env) error {
	rep, err := ask(e, (*client.Client).VerifySnapshots)
	if err != nil {
		return err
	}
	whole := len(rep.Damaged)+len(rep.Faults) == 0
	return e.judge(rep, whole, func() error {
		if whole {
			return e.say(nil, "verified %s in %s; everything is whole", count(rep.Checkpoints, "checkpoint", "checkpoints"), packs(rep.Packs, rep.Bytes))
		}
		if err := e.lines(damageLines(rep)); err != nil {
			return err
		}
		err := holdfast.Errorf(holdfast.KindInternal, "snapshot.verify", "checkpoints that cannot be restored completely: %d of %d; packs that are missing or damaged: %d",
			len(rep.Damaged), rep.Checkpoints, len(rep.Faults))
		if len(rep.Damaged) == 0 {
			return err.WithHint("every checkpoint can be restored: the damaged packs hold nothing that a checkpoint needs, or another pack has it too")
		}
		return err.WithHint("the other checkpoints can be restored: holdfast session checkpoints %s lists them", rep.Damaged[0].Session)
	})
}

// damageLines returns the damaged checkpoints with the paths that are lost, and the packs with a fault.
func damageLines(rep holdfast.VerifiedSnapshots) (out []string) {
	for _, d := range rep.Damaged {
		out = append(out, line(fmt.Sprintf("checkpoint %s of session %s has lost:", d.ID, d.Session)))
		for _, p := range d.Paths {
			out = append(out, "  "+line(p))
		}
		const most = 20 // the server names at most this many paths of a checkpoint
		switch len(d.Paths) {
		case 0:
			out = append(out, "  a part of it that no path names")
		case most:
			out = append(out, "  there may be more")
		}
	}
	for _, f := range rep.Faults {
		out = append(out, line(fmt.Sprintf("pack %s, listed by %s: %s", f.ID, count(len(f.Checkpoints), "checkpoint", "checkpoints"), f.Reason)))
	}
	return out
}

type snapshotGCCmd struct {
	DryRun bool `help:"Only show what would be removed."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*snapshotGCCmd) Help() string {
	return `The settings snapshots.keep, snapshots.max_age and snapshots.quota say which checkpoints are kept. The newest one of each session stays, as do those that are held and those from which a fork or a rewind starts. A pack that no checkpoint needs any more is marked, and removed by a gc an hour later.

Examples:
  holdfast snapshot gc --dry-run
  holdfast snapshot gc`
}

// Run removes the checkpoints and packs that no rule keeps, or with --dry-run finds them, and lists them with the
// reasons.
func (g *snapshotGCCmd) Run(e *env) error {
	c, err := e.client()
	if err != nil {
		return err
	}
	done, err := c.CollectSnapshots(e.ctx, g.DryRun)
	if err != nil {
		return err
	}
	if e.json {
		return e.print(done)
	}
	for _, f := range done.Faults {
		e.note("pack %s cannot be used: %s; holdfast snapshot verify says what is lost", f.ID, f.Reason)
	}
	rows := collectedRows(done)
	if len(rows) == 0 {
		return e.say(nil, "nothing to remove")
	}
	if err := e.table([]string{"WHAT", "ID", "SIZE", "DONE", "REASON"}, rows); err != nil {
		return err
	}
	return e.say(nil, "%s: %s, %s; %s: %s", removed(done.DryRun), count(len(done.Checkpoints), "checkpoint", "checkpoints"), packs(len(done.Removed), done.RemovedBytes),
		marked(done.DryRun), packs(len(done.Marked), done.MarkedBytes))
}

// collectedRows returns the rows of a table of what a collection did, or in a dry run would do.
func collectedRows(done holdfast.CollectedSnapshots) (rows [][]string) {
	for _, cp := range done.Checkpoints {
		reason := cmp.Or(map[string]string{
			"count": "snapshots.keep newer ones are kept", "age": "older than snapshots.max_age", "size": "the store is larger than snapshots.quota",
		}[cp.Reason], cp.Reason)
		rows = append(rows, []string{"checkpoint", string(cp.ID), "-", removed(done.DryRun), reason + ", session " + string(cp.Session)})
	}
	add := func(list []holdfast.ReportedPack, verb string) {
		for _, p := range list {
			reason := cmp.Or(map[string]string{
				"unused": "no checkpoint needs it", "merged": "other packs replace it", "orphan": "no checkpoint was stored with it",
			}[p.Reason], p.Reason)
			size := "-"
			if p.Bytes > 0 {
				size = plain.Size(p.Bytes)
			}
			rows = append(rows, []string{"pack", p.ID[:min(len(p.ID), 16)], size, verb, reason})
		}
	}
	add(done.Removed, removed(done.DryRun))
	add(done.Marked, marked(done.DryRun))
	return rows
}

func removed(dry bool) string {
	if dry {
		return "would remove"
	}
	return "removed"
}

func marked(dry bool) string {
	if dry {
		return "would remove an hour later"
	}
	return "goes in an hour"
}
