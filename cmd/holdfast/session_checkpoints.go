package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/plain"
)

type sessionCheckpointsCmd struct {
	ID     string `arg:"" help:"${session}"`
	Limit  int    `short:"n" default:"50" help:"How many at most; 0 is all."`
	Cursor string `placeholder:"CURSOR" help:"Go on where a list ended: its next."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*sessionCheckpointsCmd) Help() string {
	return `Each turn ends with a checkpoint; #3 names that of turn 3. Other ones come from commands and files outside of turns (direct), from a stop of the box (stop), from a restart of the server (late), and from before a rewind (kept). Nothing can go back to a turn whose checkpoint is marked failed: its files could not be stored.

Examples:
  holdfast session checkpoints $id
  holdfast session rewind $id --to '#3'`
}

// Run lists checkpoints.
func (s *sessionCheckpointsCmd) Run(e *env) error {
	if s.Limit < 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "session checkpoints", "--limit %d is negative", s.Limit)
	}
	c, id, err := e.onSession(s.ID)
	if err != nil {
		return err
	}
	list, err := s.page(e, c, id)
	if err != nil {
		return err
	}
	if e.json {
		return e.print(list)
	}
	if err := e.table([]string{"TURN", "ID", "REASON", "AGE", "FILES", "SIZE", ""}, checkpointRows(list.Checkpoints, time.Now())); err != nil {
		return err
	}
	if list.Next != "" {
		e.note("there are more: --limit 0 shows all, --cursor %s goes on", list.Next)
	}
	return nil
}

// page fetches pages of the server's list until it has --limit checkpoints, or all if that is 0, and returns them as
// one page.
func (s *sessionCheckpointsCmd) page(e *env, c *client.Client, id holdfast.SessionID) (holdfast.CheckpointPage, error) {
	const most = 1000
	all := holdfast.CheckpointPage{Checkpoints: []holdfast.Checkpoint{}, Next: s.Cursor}
	for {
		limit := most
		if s.Limit > 0 {
			limit = min(s.Limit-len(all.Checkpoints), most)
		}
		page, err := c.Checkpoints(e.ctx, id, all.Next, limit)
		if err != nil {
			return all, err
		}
		all.Checkpoints = append(all.Checkpoints, page.Checkpoints...)
		if all.Next = page.Next; all.Next == "" || len(all.Checkpoints) == s.Limit {
			return all, nil
		}
	}
}

// checkpointRows returns the rows of a table of checkpoints.
func checkpointRows(list []holdfast.Checkpoint, now time.Time) (rows [][]string) {
	var ids []string
	for _, cp := range list {
		ids = append(ids, string(cp.ID))
	}
	for i, short := range plain.Endings(ids) {
		cp := list[i]
		var marks []string
		if cp.Held {
			marks = append(marks, "held")
		}
		if cp.Fuzzy {
			marks = append(marks, "fuzzy")
		}
		if cp.Abandoned {
			marks = append(marks, "abandoned")
		}
		files, size := strconv.FormatInt(cp.Files, 10), plain.Size(cp.Bytes)
		if cp.Failed {
			files, size, marks = "-", "-", append(marks, "failed")
		}
		rows = append(rows, []string{
			"#" + strconv.FormatInt(cp.Number, 10), short, string(cp.Reason), plain.Age(now.Sub(cp.CreatedAt)), files, size, strings.Join(marks, ", "),
		})
	}
	return rows
}

// checkpointOf returns the id of the checkpoint of a session that a name means: the id of a checkpoint
// or turn, at least 4 characters at the beginning or end of a checkpoint's id, or the number of a turn, as #3 or 3;
// #0 is the newest checkpoint from before the first turn, and start is the first checkpoint. It asks the server only
// if the name is not a whole id.
func checkpointOf(ctx context.Context, c *client.Client, id holdfast.SessionID, name string) (holdfast.CheckpointID, error) {
	if cp, err := holdfast.Parse[holdfast.CheckpointID](name); err == nil {
		return cp, nil
	}
	if name == string(holdfast.CheckpointStart) {
		return oldest(ctx, c, id)
	}
	digits, marked := strings.CutPrefix(name, "#")
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil && (marked || len(digits) < 8) {
		switch {
		case n == 0:
			return beforeTurns(ctx, c, id)
		case n > 0:
			return endOfTurn(ctx, c, id, n)
		}
	}
	part := strings.ToLower(name)
	var found holdfast.CheckpointID
	if len(part) >= 4 && isID(part) {
		for cp, err := range c.AllCheckpoints(ctx, id) {
			switch {
			case err != nil:
				return "", err
			case !strings.HasPrefix(string(cp.ID), part) && !strings.HasSuffix(string(cp.ID), part):
			case found != "":
				return "", holdfast.Errorf(holdfast.KindInvalid, "checkpoint", "%s fits several checkpoints of session %s", holdfast.Quote(name), id).
					WithHint("give more of the id: holdfast session checkpoints %s --json shows whole ids", id)
			default:
				found = cp.ID
			}
		}
		if found == "" {
			return "", holdfast.Errorf(holdfast.KindNotFound, "checkpoint", "session %s has no checkpoint with an id like %s", id, holdfast.Quote(name)).
				WithHint("holdfast session checkpoints %s shows the checkpoints", id)
		}
		return found, nil
	}
	return "", holdfast.Errorf(holdfast.KindInvalid, "checkpoint", "%s cannot name a checkpoint", holdfast.Quote(name)).
		WithHint("give a checkpoint's id, the beginning or ending of it, or the number of a turn, as '#3': holdfast session checkpoints %s shows the checkpoints", id)
}

// beforeTurns returns the newest checkpoint that is from before the first turn and that no rewind has abandoned.
func beforeTurns(ctx context.Context, c *client.Client, id holdfast.SessionID) (holdfast.CheckpointID, error) {
	for cp, err := range c.AllCheckpoints(ctx, id) {
		if err != nil || cp.Number == 0 && !cp.Abandoned {
			return cp.ID, err
		}
	}
	return "", holdfast.Errorf(holdfast.KindNotFound, "checkpoint", "session %s has no checkpoint from before its first turn", id).
		WithHint("holdfast session checkpoints %s shows the checkpoints to go back to", id)
}

// oldest returns the id of a session's oldest checkpoint, leaving out those whose snapshot failed.
func oldest(ctx context.Context, c *client.Client, id holdfast.SessionID) (first holdfast.CheckpointID, err error) {
	for cp, err := range c.AllCheckpoints(ctx, id) {
		if err != nil {
			return "", err
		}
		if !cp.Failed {
			first = cp.ID
		}
	}
	if first == "" {
		return "", holdfast.Errorf(holdfast.KindNotFound, "checkpoint", "session %s has no checkpoint yet", id).
			WithHint("each turn ends with a checkpoint: holdfast session checkpoints %s", id)
	}
	return first, nil
}

// endOfTurn returns the id of the checkpoint at the end of turn n, which is the id of the turn.
func endOfTurn(ctx context.Context, c *client.Client, id holdfast.SessionID, n int64) (holdfast.CheckpointID, error) {
	turns, err := c.Turns(ctx, id, n-1, 1)
	if err != nil {
		return "", err
	}
	if len(turns) == 0 || turns[0].Number != n {
		return "", holdfast.Errorf(holdfast.KindNotFound, "checkpoint", "session %s has no turn %d", id, n).
			WithHint("holdfast session checkpoints %s shows the turns to go back to", id)
	}
	return holdfast.CheckpointID(turns[0].ID), nil
}

// checkpointAt does what checkpointOf does, for a flag that may be absent: it returns an empty id for an empty name.
func checkpointAt(ctx context.Context, c *client.Client, id holdfast.SessionID, name string) (holdfast.CheckpointID, error) {
	if name == "" {
		return "", nil
	}
	return checkpointOf(ctx, c, id, name)
}

// comparisonOf returns the comparison that the words after /diff in a chat ask for, "[stat] [A [B]]", where A and
// B name checkpoints and A may be start. command is a command line that prints the same comparison.
func comparisonOf(ctx context.Context, c *client.Client, id holdfast.SessionID, words []string) (of holdfast.CompareCheckpoints, command string, err error) {
	of.Format = holdfast.DiffPatch
	command = "holdfast session diff " + string(id)
	if len(words) > 0 && words[0] == "stat" {
		of.Format, words = holdfast.DiffStat, words[1:]
		command += " --stat"
	}
	if len(words) > 2 {
		return of, "", holdfast.Errorf(holdfast.KindInvalid, "diff", "at most two checkpoints can be compared, not %d", len(words)).
			WithHint("/diff shows all changes, /diff #2 those since turn 2, /diff #2 #3 those from turn 2 to turn 3; /diff stat, with or without turns, counts lines")
	}
	for i, name := range words {
		at := holdfast.CheckpointStart
		if i > 0 || name != string(at) {
			if at, err = checkpointOf(ctx, c, id, name); err != nil {
				return of, "", err
			}
		}
		if i == 0 {
			of.From = at
			command += " --from " + string(at)
		} else {
			of.To = at
			command += " --to " + string(at)
		}
	}
	return of, command, nil
}

type filesRestoreCmd struct {
	ID   string `arg:"" help:"${session}"`
	Path string `arg:"" help:"The file or directory, relative to the workspace; . is all of it."`
	At   string `required:"" placeholder:"CHECKPOINT" help:"From where: the id of a checkpoint or turn, or the number of a turn, as '#3'."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*filesRestoreCmd) Help() string {
	return `A file becomes that of the checkpoint, and so does each file of a directory; files that the directory got since then stay. The conversation does not change: holdfast session rewind takes back both.

Examples:
  holdfast files restore $id notes.md --at '#3'
  holdfast files restore $id src --at 8b1e9f2a`
}

// Run puts files of a checkpoint back.
func (f *filesRestoreCmd) Run(e *env) error {
	c, id, err := e.onSession(f.ID)
	if err != nil {
		return err
	}
	at, err := checkpointOf(e.ctx, c, id, f.At)
	if err != nil {
		return err
	}
	sum, kept, err := c.RestoreFiles(e.ctx, id, holdfast.RestoreFiles{Path: f.Path, At: at})
	if err != nil {
		return noPath(err, id, at)
	}
	out := map[string]any{"copied": sum}
	if kept != "" {
		out["kept_checkpoint_id"] = kept
		e.note("the files as they were are checkpoint %s; to undo: holdfast files restore %s %s --at %s", kept, id, word(f.Path), kept)
	}
	return e.say(out, "restored %s, %s", count(int(sum.Files), "file", "files"), plain.Size(sum.Bytes))
}
