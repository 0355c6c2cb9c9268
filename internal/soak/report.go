package soak

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// The limits: growth of the heap in MB per hour, and movement of the resident set as a share of its minimum.
const (
	maxSlope  = 2.0
	maxSpread = 0.10
)

// Sample is a measurement of the server at one moment of equal load.
type Sample struct {
	// AtS is the number of seconds since the start of the load.
	AtS float64 `json:"at_s"`
	// HeapMB is the live heap and RSSMB the resident set, in MB, after forced garbage collections.
	HeapMB      float64 `json:"heap_mb"`
	RSSMB       float64 `json:"rss_mb"`
	Descriptors int     `json:"descriptors"`
	Goroutines  int     `json:"goroutines"`
	// Turns is how many turns have ended so far.
	Turns int64 `json:"turns"`
}

// Report is the result of one run.
type Report struct {
	Sessions  int     `json:"sessions"`
	DurationS float64 `json:"duration_s"`
	WarmUpS   float64 `json:"warm_up_s"`
	// Turns is how many turns ended, Lives how many sessions were created and purged.
	Turns   int64    `json:"turns"`
	Lives   int64    `json:"lives"`
	Samples []Sample `json:"samples"`
	// SlopeMBh is the least-squares slope of the live heap after the warm-up, in MB per hour. Spread is
	// the difference between the largest and the smallest resident set, as a share of the smallest.
	SlopeMBh float64 `json:"slope_mb_per_h"`
	Spread   float64 `json:"rss_spread"`
	// Violations are the limits that were exceeded, as sentences.
	Violations []string `json:"violations"`
}

// OK reports whether every limit held.
func (r Report) OK() bool { return len(r.Violations) == 0 }

// judge computes the verdict. It ignores samples from the warm-up.
func (r *Report) judge() {
	warm := slices.DeleteFunc(slices.Clone(r.Samples), func(s Sample) bool { return s.AtS < r.WarmUpS })
	if len(warm) < 3 {
		r.Violations = append(r.Violations, fmt.Sprintf("only %d samples were taken after the warm-up, too few for a verdict", len(warm)))
		return
	}
	r.SlopeMBh = slope(warm) * 3600
	if r.SlopeMBh > maxSlope {
		r.Violations = append(r.Violations, fmt.Sprintf("the live heap grows by %.2f MB/h, more than the allowed %.0f", r.SlopeMBh, maxSlope))
	}
	least, most := warm[0].RSSMB, warm[0].RSSMB
	for _, s := range warm {
		least, most = min(least, s.RSSMB), max(most, s.RSSMB)
	}
	r.Spread = (most - least) / least
	if r.Spread > maxSpread {
		r.Violations = append(r.Violations, fmt.Sprintf("the resident set moved by %.1f %% (%.1f to %.1f MB), more than the allowed %.0f %%", 100*r.Spread, least, most, 100*maxSpread))
	}
	equal := func(what string, of func(Sample) int) {
		seen := map[int]int{}
		for _, s := range warm {
			seen[of(s)]++
		}
		if len(seen) > 1 {
			r.Violations = append(r.Violations, fmt.Sprintf("the number of %s differs between samples of equal load: %v (value:times)", what, seen))
		}
	}
	equal("descriptors", func(s Sample) int { return s.Descriptors })
	equal("goroutines", func(s Sample) int { return s.Goroutines })
}

// slope returns the least-squares slope of the live heap in MB per second.
func slope(samples []Sample) float64 {
	var sx, sy, sxx, sxy float64
	n := float64(len(samples))
	for _, s := range samples {
		sx += s.AtS
		sy += s.HeapMB
		sxx += s.AtS * s.AtS
		sxy += s.AtS * s.HeapMB
	}
	d := n*sxx - sx*sx
	if d == 0 {
		return 0
	}
	return (n*sxy - sx*sy) / d
}

// Print writes the verdict as a few lines of text.
func (r Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintf(t, "load\t%d sessions, %d turns, %d sessions ended, %.0f s (%.0f s of it warm-up)\n", r.Sessions, r.Turns, r.Lives, r.DurationS, r.WarmUpS)
	fmt.Fprintf(t, "live heap\t%+.2f MB/h\t≤ %.0f\n", r.SlopeMBh, maxSlope)
	fmt.Fprintf(t, "resident set\tmoved by %.1f %%\t≤ %.0f %%\n", 100*r.Spread, 100*maxSpread)
	if n := len(r.Samples); n > 0 {
		last := r.Samples[n-1]
		fmt.Fprintf(t, "at the end\t%.1f MB heap, %.1f MB resident, %d descriptors, %d goroutines\n", last.HeapMB, last.RSSMB, last.Descriptors, last.Goroutines)
	}
	for _, v := range r.Violations {
		fmt.Fprintf(t, "NOT HELD\t%s\n", v)
	}
	return t.Flush()
}
