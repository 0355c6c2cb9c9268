package bench

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// Figure is one measured quantity in one run.
type Figure struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	// Samples are the measured values in order. A rate or a size has one.
	Samples []float64 `json:"samples"`
	// Judge names the value that is compared with the gate: p50, p99, rate, size, slope (the growth
	// per hour), or spread (the largest sample over the smallest, in percent).
	Judge string `json:"judge"`
	// Every is the number of seconds between two samples of a slope.
	Every float64 `json:"every_s,omitempty"`
	// Gate is the limit of the value; with More it is the least allowed value, else the greatest.
	Gate float64 `json:"gate"`
	More bool    `json:"more,omitempty"`
	// Rule is the gate in words, Baseline the value of comparable software, or the measured value in the words of
	// the rule.
	Rule     string `json:"rule"`
	Baseline string `json:"baseline,omitempty"`
	// Missing is why the figure could not be measured; then its gate does not hold.
	Missing string `json:"missing,omitempty"`
}

// percentile returns the value at p (0-1) of the samples.
func (f Figure) percentile(p float64) float64 {
	if len(f.Samples) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(f.Samples))
	return s[min(len(s)-1, int(p*float64(len(s))))]
}

// Value returns the value that is compared with the gate.
func (f Figure) Value() float64 {
	switch f.Judge {
	case "p99":
		return f.percentile(0.99)
	case "p50":
		return f.percentile(0.5)
	case "spread":
		least, most := f.percentile(0), f.percentile(1)
		return 100 * (most - least) / least
	case "slope":
		return f.slope()
	}
	return f.percentile(0)
}

// slope returns the least-squares slope of the samples, per hour.
func (f Figure) slope() float64 {
	var sx, sy, sxx, sxy float64
	n := float64(len(f.Samples))
	for i, y := range f.Samples {
		x := float64(i) * f.Every / 3600
		sx, sy, sxx, sxy = sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	d := n*sxx - sx*sx
	if d == 0 {
		return 0
	}
	return (n*sxy - sx*sy) / d
}

// OK reports whether the value is within the gate.
func (f Figure) OK() bool {
	if f.Missing != "" || len(f.Samples) == 0 {
		return false
	}
	if f.More {
		return f.Value() >= f.Gate
	}
	return f.Value() <= f.Gate
}

// worse reports whether f is further from its gate than g.
func (f Figure) worse(g Figure) bool {
	if f.OK() != g.OK() {
		return !f.OK()
	}
	if f.More {
		return f.Value() < g.Value()
	}
	return f.Value()-f.Gate > g.Value()-g.Gate
}

// Run is the result of one pass over all figures.
type Run struct {
	Load    string   `json:"load_average"`
	Figures []Figure `json:"figures"`
}

// Report is the result of all runs of a benchmark.
type Report struct {
	Version string `json:"version"`
	Machine string `json:"machine"`
	Date    string `json:"date"`
	Runs    []Run  `json:"runs"`
}

// Worst returns each figure with its worst value of all runs.
func (r Report) Worst() []Figure {
	if len(r.Runs) == 0 {
		return nil
	}
	out := slices.Clone(r.Runs[0].Figures)
	for _, run := range r.Runs[1:] {
		for i, f := range run.Figures {
			if i < len(out) && f.worse(out[i]) {
				out[i] = f
			}
		}
	}
	return out
}

// OK reports whether all gates hold in every run; figures without a rule have no gate. Without figures it is false.
func (r Report) OK() bool {
	worst := r.Worst()
	for _, f := range worst {
		if f.Rule != "" && !f.OK() {
			return false
		}
	}
	return len(worst) > 0
}

// Print writes a table of all figures, each with its worst value of all runs.
func (r Report) Print(w io.Writer) error {
	fmt.Fprintf(w, "%s, %s; worst of %d runs; load average", r.Machine, r.Date, len(r.Runs))
	for _, run := range r.Runs {
		fmt.Fprintf(w, " %s;", run.Load)
	}
	fmt.Fprint(w, "\n\n")
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "what\tp50\tp95\tn\tunit\tgate\tverdict\tbaseline")
	for _, f := range r.Worst() {
		verdict := "ok"
		switch {
		case f.Missing != "":
			verdict = "not measured: " + f.Missing
		case f.Rule == "":
			verdict = "-"
		case !f.OK():
			verdict = "MISSED"
		}
		p95 := number(f.percentile(0.95))
		switch f.Judge {
		case "p99", "slope", "spread":
			p95 = f.Judge + " " + number(f.Value())
		}
		if len(f.Samples) < 2 {
			p95 = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", f.Name, number(f.percentile(0.5)), p95, len(f.Samples), f.Unit, f.gate(), verdict, f.Baseline)
	}
	return t.Flush()
}

func (f Figure) gate() string {
	if f.Rule == "" {
		return "-"
	}
	sign := "≤"
	if f.More {
		sign = "≥"
	}
	s := sign + " " + number(f.Gate)
	if strings.Contains(f.Rule, "commit") || strings.Contains(f.Rule, "own") || strings.ContainsAny(f.Rule, "/%") {
		s += " (" + f.Rule + ")"
	}
	return s
}

func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	if f := strings.Fields(string(b)); len(f) >= 3 {
		return strings.Join(f[:3], " ")
	}
	return "unknown"
}
