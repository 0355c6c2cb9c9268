package audit

import (
	"testing"

	"github.com/holdfast-run/holdfast"
)

func TestPlaces(t *testing.T) {
	for _, s := range []string{"0:0", "7:12", "9223372036854775807:1"} {
		p, err := ParsePlace(s)
		var back Place
		if err != nil || p.String() != s || back.UnmarshalText([]byte(s)) != nil || back != p {
			t.Errorf("%s: %v %v, %v", s, p, back, err)
		}
	}
	for _, s := range []string{"", "7", "7:", ":7", "7:1:2", "07:1", "7:01", "+7:1", "7:-1", "-1:0", "9223372036854775808:1", "7.0:1", " 7:1", "7:1\n"} {
		if p, err := ParsePlace(s); !holdfast.IsKind(err, holdfast.KindInvalid) || holdfast.HintOf(err) == "" || p != (Place{}) {
			t.Errorf("%q: %v, %v", s, p, err)
		}
	}
	ordered := []Place{{}, {N: 1}, {N: 2}, {Chain: 1}, {Chain: 1, N: 1}, {Chain: 2}}
	for i, p := range ordered {
		for j, q := range ordered {
			if p.Before(q) != (i < j) {
				t.Errorf("%s before %s: %v", p, q, p.Before(q))
			}
		}
	}
}

func FuzzParsePlace(f *testing.F) {
	f.Add("7:12")
	f.Add("+7:1")
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := ParsePlace(s); err == nil && (p.String() != s || p.Chain < 0 || p.N < 0) {
			t.Fatalf("%q is %v", s, p)
		}
	})
}
