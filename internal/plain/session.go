package plain

import (
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Table returns rows as lines with aligned columns, head first. Cells are made safe for a terminal.
func Table(head []string, rows [][]string) []string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 2, 4, 2, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = OneLine(cell)
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush() // writing to a strings.Builder never fails
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

// Session returns a session as lines, each with the name and value of a field that is set.
func Session(s holdfast.Session) []string {
	at := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return When(*t)
	}
	return setFields([][2]string{
		{"id", string(s.ID)},
		{"status", string(s.Status)},
		{"error", s.Error},
		{"title", s.Title},
		{"tags", strings.Join(s.Tags, ", ")},
		{"agent", string(s.Agent) + " " + Short(string(s.AgentVersion))},
		{"workspace", string(s.Workspace)},
		{"trust", string(s.Trust)},
		{"runtime", s.Runtime},
		{"model", s.Model},
		{"mode", string(s.Mode)},
		{"files from", source(s.Source)},
		{"env", strings.Join(slices.Sorted(maps.Keys(s.Env)), ", ")},
		{"turns", fmt.Sprintf("%d completed", s.CompletedTurns)},
		{"events", strconv.FormatInt(s.LastSeq, 10)},
		{"created", When(s.CreatedAt)},
		{"spent", Spent(s.Spent)},
		{"budget", Budget(s.Budget)},
		{"turn budget", Budget(s.TurnBudget)},
		{"network", network(s.Network)},
		{"parked until", at(s.ParkedUntil)},
		{"purged at", at(s.PurgeAt)},
		{"last active", When(s.LastActiveAt)},
	})
}

// source returns where a session's first files come from, and whether their import is incomplete.
func source(s *holdfast.Source) string {
	switch {
	case s == nil:
		return ""
	case !s.Complete:
		return s.From + ", incomplete"
	}
	return s.From
}

// network returns the network destinations that a session names, as one line.
func network(list []string) string {
	if list != nil && len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}

// Files returns the entries of a directory as lines of a table.
func Files(list holdfast.FileList) []string {
	rows := [][]string{}
	for _, one := range list.Entries {
		name, kind := one.Path, "-"
		switch one.Type {
		case "dir":
			name, kind = name+"/", "d"
		case "symlink":
			name, kind = name+" -> "+one.Target, "l"
		}
		rows = append(rows, []string{kind + fs.FileMode(one.Mode & 0o777).String()[1:], strconv.FormatInt(one.Size, 10), When(one.ModTime), name})
	}
	return Table([]string{"MODE", "SIZE", "MODIFIED", "NAME"}, rows)
}

// FilesCut returns a note that a list of files is incomplete; empty if it is complete.
func FilesCut(list holdfast.FileList) string {
	if !list.Truncated {
		return ""
	}
	return "the list is cut: there are more entries"
}

// When returns a local time as text, "-" for the zero time.
func When(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// Age returns a time that has passed as text, in its largest whole unit; "0 s" for the future.
func Age(d time.Duration) string {
	const day = 24 * time.Hour
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < day:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return Count(int(d/day), "day", "days")
}

// Short returns the first 19 characters of a long version id.
func Short(id string) string { return id[:min(len(id), 19)] }

// Budget returns a budget as text, in the form in which a command line accepts it; empty for nil or for no bound.
func Budget(b *holdfast.Budget) string {
	if b == nil {
		return ""
	}
	var parts []string
	for _, p := range []struct {
		name string
		n    float64
	}{{"turns", float64(b.Turns)}, {"tokens", float64(b.Tokens)}, {"usd", b.USD}, {"seconds", b.Seconds}} {
		if p.n != 0 {
			parts = append(parts, p.name+"="+strconv.FormatFloat(p.n, 'f', -1, 64))
		}
	}
	return strings.Join(parts, ",")
}

// Spent returns the model calls, tokens and cost of a session as text.
func Spent(s holdfast.Spent) string {
	return fmt.Sprintf("%s, %d tokens, cost %s", Count(int(s.Calls), "model call", "model calls"), s.Tokens(), Cost(s.Usage))
}

// Cost returns the cost of model calls as text, "unknown" if some have no price.
func Cost(u holdfast.Usage) string {
	if u.UnpricedCalls > 0 {
		return fmt.Sprintf("unknown (%d calls have no price)", u.UnpricedCalls)
	}
	return fmt.Sprintf("%.4f usd", float64(u.CostMicroUSD)/1e6)
}

// Tokens returns a number of tokens in a few characters, such as 12.3k.
func Tokens(n int64) string {
	switch {
	case n < 1000:
		return strconv.FormatInt(n, 10)
	case n < 1_000_000:
		return strconv.FormatFloat(math.Floor(float64(n)/100)/10, 'f', -1, 64) + "k"
	}
	return strconv.FormatFloat(math.Floor(float64(n)/100_000)/10, 'f', -1, 64) + "M"
}

// Receipt returns one line that tells how a session was resumed and what was lost.
func Receipt(r holdfast.Receipt) string {
	tier := string(r.Tier)
	if r.Tier == holdfast.TierPending {
		tier += " until its agent starts"
	}
	out := fmt.Sprintf("tier %s, %s from %s, files %s, box %s", tier,
		Count(int(r.Turns), "turn", "turns"), Count(int(r.Events), "event", "events"), r.Files, r.Box)
	if len(r.Lost) > 0 {
		out += "; lost: " + strings.Join(r.Lost, ", ")
	}
	if r.AtRisk != nil {
		out += "; files of commands shortly before " + r.AtRisk.LastEvent.Format(time.DateTime+" UTC") + " may be lost after a power cut"
	}
	return OneLine(fmt.Sprintf("%s (%.1f ms)", out, r.DurationMS))
}

// ShortIDs returns the endings of the sessions' ids, long enough to differ from each other.
func ShortIDs(sessions []holdfast.Session) []string {
	ids := make([]string, len(sessions))
	for i, s := range sessions {
		ids[i] = string(s.ID)
	}
	return Endings(ids)
}

// Endings returns the endings of ids, at least 8 characters and long enough to differ from each other.
func Endings(ids []string) []string {
	out := make([]string, len(ids))
	for n := shortest; ; n += 4 {
		seen := map[string]bool{}
		for i, id := range ids {
			out[i] = id[max(0, len(id)-n):]
			seen[out[i]] = true
		}
		if len(seen) == len(ids) || n >= 36 {
			return out
		}
	}
}

// shortest is the least number of characters of an id that are shown.
const shortest = 8

// ShortID returns the last 8 characters of a session id. Ids of about the same time share their
// beginning, not their end.
func ShortID(id holdfast.SessionID) string { return string(id[max(0, len(id)-shortest):]) }
