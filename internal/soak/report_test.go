package soak

import (
	"math"
	"strings"
	"testing"
)

// steady is a run of 40 samples, one every 20 s, that f may bend.
func steady(f func(i int, s *Sample)) Report {
	r := Report{WarmUpS: 100}
	for i := range 40 {
		s := Sample{AtS: float64(20 * (i + 1)), HeapMB: 8, RSSMB: 60, Descriptors: 120, Goroutines: 300}
		if i < 4 {
			// What the warm-up does is nobody's business.
			s = Sample{AtS: s.AtS, HeapMB: 2, RSSMB: 20, Descriptors: 3, Goroutines: 4}
		}
		f(i, &s)
		r.Samples = append(r.Samples, s)
	}
	r.judge()
	return r
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name string
		bend func(int, *Sample)
		want string
	}{
		{"level", func(int, *Sample) {}, ""},
		{"noise without a trend", func(i int, s *Sample) { s.HeapMB += 0.2 * float64(i%2) }, ""},
		{"2.5 MB an hour", func(_ int, s *Sample) { s.HeapMB += 2.5 * s.AtS / 3600 }, "live heap grows by 2.50 MB/h"},
		{"shrinking", func(_ int, s *Sample) { s.HeapMB -= 2.5 * s.AtS / 3600 }, ""},
		{"a resident set that moves", func(i int, s *Sample) { s.RSSMB += 7 * float64(i%2) }, "resident set moved by 11.7 %"},
		{"one descriptor left open", func(i int, s *Sample) { s.Descriptors += i / 20 }, "descriptors differ"},
		{"one goroutine too many", func(i int, s *Sample) { s.Goroutines += i / 30 }, "goroutines differ"},
	} {
		r := steady(c.bend)
		got := strings.Join(r.Violations, "; ")
		if (c.want == "") != r.OK() || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if r := (Report{WarmUpS: 10}); true {
		if r.judge(); r.OK() {
			t.Error("a run without samples proved something")
		}
	}
}

func TestSlope(t *testing.T) {
	var s []Sample
	for i := range 10 {
		s = append(s, Sample{AtS: float64(i), HeapMB: 3 + 0.5*float64(i)})
	}
	if got := slope(s); math.Abs(got-0.5) > 1e-9 {
		t.Errorf("%v", got)
	}
	if got := slope(s[:1]); got != 0 {
		t.Errorf("one sample has a slope of %v", got)
	}
}
