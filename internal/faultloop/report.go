package faultloop

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
	// Messages and Effects are the numbers of those that were acknowledged to clients; effects are files.
	Messages int `json:"messages"`
	Effects  int `json:"effects"`
	// LostMessages, Gaps and Doubled must be 0, and so must Untold: missing effects that
	// no notice named. Lost counts all missing effects.
	LostMessages int `json:"lost_messages"`
	Gaps         int `json:"gaps"`
	Doubled      int `json:"doubled"`
	Lost         int `json:"lost_effects"`
	Untold       int `json:"untold_effects"`
	// Unknown counts calls whose outcome was reported to the model as unknown.
	Unknown int `json:"unknown_outcomes"`
	// Ended is how often the server ended by itself, so that a supervisor would start it again;
	// Repairs is how often a person would have had to start it.
	Ended      int      `json:"ended_by_itself"`
	Repairs    int      `json:"repairs"`
	Violations []string `json:"violations"`
	Leftovers  []string `json:"leftovers"`
	DurationS  float64  `json:"duration_s"`
}

func (r *Result) add(v verdict) {
	r.Messages += v.messages
	r.Effects += v.effects
	r.LostMessages += v.unseen
	r.Gaps += v.gaps
	r.Doubled += v.doubled
	r.Lost += v.lost
	r.Untold += v.untold
	r.Unknown += v.unknown
	r.Violations = append(r.Violations, v.violations...)
}

// OK reports whether the run found no problem.
func (r Result) OK() bool { return len(r.Violations) == 0 && len(r.Leftovers) == 0 && r.Repairs == 0 }

// Print writes the result as text for people.
func (r Result) Print(w io.Writer) error {
	var b strings.Builder
	n := 0
	for _, k := range Kinds {
		n += r.Faults[k]
	}
	fmt.Fprintf(&b, "\n%d faults in %.0f s, seed %d\n", n, r.DurationS, r.Seed)
	row := func(name string, n int, more string) { fmt.Fprintf(&b, "  %-34s %6d  %s\n", name, n, more) }
	for _, k := range Kinds {
		row(string(k), r.Faults[k], "")
	}
	row("messages acknowledged", r.Messages, fmt.Sprintf("%d lost", r.LostMessages))
	row("effects acknowledged", r.Effects, fmt.Sprintf("%d lost in power cuts, %d of them untold", r.Lost, r.Untold))
	row("effects doubled", r.Doubled, "")
	row("gaps in event numbers", r.Gaps, "")
	row("outcomes told as unknown", r.Unknown, "")
	row("ends of the server by itself", r.Ended, "its supervisor starts it again")
	row("repairs by hand", r.Repairs, "")
	row("leftovers", len(r.Leftovers), "")
	for _, v := range slices.Concat(r.Violations, r.Leftovers) {
		fmt.Fprintf(&b, "WRONG  %s\n", v)
	}
	if r.OK() {
		b.WriteString("no message lost, each lost effect told, nothing twice, nothing left behind\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
