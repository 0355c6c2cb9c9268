package torture

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Result is the outcome of a run.
type Result struct {
	Seed   uint64       `json:"seed"`
	Faults map[Kind]int `json:"faults"`
	// InTurn counts the faults during a turn, Points those at each named point.
	InTurn int            `json:"in_turn"`
	Points map[string]int `json:"points"`
	// Messages and Effects are the numbers of those that were acknowledged to clients; effects are files.
	Messages int `json:"messages"`
	Effects  int `json:"effects"`
	// Lost counts all missing effects. Untold counts those that no notice named, that the server had promised
	// to be on the disk, or that a snapshot holds. LostMessages, Gaps, Doubled and Untold must be 0.
	LostMessages int `json:"lost_messages"`
	Gaps         int `json:"gaps"`
	Doubled      int `json:"doubled"`
	Lost         int `json:"lost_effects"`
	Untold       int `json:"untold_effects"`
	// Unknown counts calls whose outcome was reported to the model as unknown.
	Unknown int `json:"unknown_outcomes"`
	// Ended is how often the server ended by itself, so that a supervisor would start it again;
	// Repairs is how often a person would have had to start it.
	Ended   int `json:"ended_by_itself"`
	Repairs int `json:"repairs"`
	// Snapshots is the outcome for the checkpoints, in a run of snapshots.
	Snapshots *Snapshots `json:"snapshots,omitempty"`
	// Workspace is the outcome for the workspace, in a run in which the sessions share one.
	Workspace  *Workspace `json:"workspace,omitempty"`
	Violations []string   `json:"violations"`
	// Shortfalls are the minimums that a full run of kills (160 or more), a run of snapshots or a run in a
	// workspace missed, so that it proves less than it should.
	Shortfalls []string `json:"shortfalls"`
	Leftovers  []string `json:"leftovers"`
	DurationS  float64  `json:"duration_s"`
}

func (r *Result) bad(format string, args ...any) {
	r.Violations = append(r.Violations, fmt.Sprintf(format, args...))
}

// OK reports whether the run found no problem.
func (r Result) OK() bool {
	return len(r.Violations)+len(r.Leftovers)+len(r.Shortfalls)+r.Repairs == 0
}

func (r Result) total() int {
	n := 0
	for _, k := range r.Faults {
		n += k
	}
	return n
}

// shortfalls checks a full run of kills against its minimums: 100 kills of the server and 50 of
// boxd, 70 % of the kills during a turn, and each named point 5 times.
func (r Result) shortfalls() []string {
	var s shortfalls
	s.least("kills of the server", r.Faults[KillServer], 100)
	s.least("kills of boxd", r.Faults[KillBox], 50)
	s.least("percent of kills in a turn", 100*r.InTurn/max(r.total(), 1), 70)
	for _, p := range Points {
		s.least("kills at "+p, r.Points[p], 5)
	}
	return s
}

// shortfalls are the minimums that a run missed.
type shortfalls []string

func (s *shortfalls) least(what string, got, want int) {
	if got < want {
		*s = append(*s, fmt.Sprintf("%s: %d, but at least %d are required", what, got, want))
	}
}

// Print writes the result as text for people.
func (r Result) Print(w io.Writer) error {
	var b strings.Builder
	n := r.total()
	fmt.Fprintf(&b, "\n%d faults in %.1f s, seed %d; %d (%d %%) while a turn ran\n", n, r.DurationS, r.Seed, r.InTurn, 100*r.InTurn/max(n, 1))
	row := func(name string, n int, more string) {
		b.WriteString(strings.TrimRight(fmt.Sprintf("  %-36s %6d  %s", name, n, more), " ") + "\n")
	}
	for _, k := range Kinds {
		if r.Faults[k] > 0 {
			row(string(k), r.Faults[k], "")
		}
	}
	for _, p := range slices.Concat(Points, SnapshotPoints) {
		if r.Points[p] > 0 {
			row("at "+p, r.Points[p], "")
		}
	}
	row("messages acknowledged", r.Messages, fmt.Sprintf("%d lost", r.LostMessages))
	row("effects acknowledged", r.Effects, fmt.Sprintf("%d lost in power cuts, %d of them untold", r.Lost, r.Untold))
	row("effects doubled", r.Doubled, "")
	row("gaps in event numbers", r.Gaps, "")
	row("outcomes told as unknown", r.Unknown, "")
	row("ends of the server by itself", r.Ended, "its supervisor starts it again")
	row("repairs by hand", r.Repairs, "")
	row("leftovers", len(r.Leftovers), "")
	if s := r.Snapshots; s != nil {
		row("snapshots acknowledged", s.Taken, fmt.Sprintf("%d fuzzy, %d late, %d failed", s.Fuzzy, s.Late, s.Failed))
		row("checkpoints compared", s.Compared, fmt.Sprintf("%d more opened, %d wrong", s.Opened, s.Wrong))
		row("rewinds", s.Rewinds, fmt.Sprintf("%d interrupted", s.CutRewinds))
		row("restores", s.Restores, fmt.Sprintf("%d interrupted", s.CutRestores))
		row("forks", s.Forks, "")
	}
	if s := r.Workspace; s != nil {
		row("faults while all sessions had a turn", s.Together, "")
		row("calls that outlived their server", s.Adopted, "")
	}
	for _, v := range slices.Concat(r.Violations, r.Leftovers, r.Shortfalls) {
		fmt.Fprintf(&b, "WRONG  %s\n", v)
	}
	if r.OK() {
		b.WriteString("no message lost, each lost effect told, nothing twice, nothing left behind\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
