package config

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// Size is a number of bytes, never negative.
type Size int64

// UnmarshalText sets the size from text, as ParseSize reads it.
func (s *Size) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSize(string(text))
	return err
}

// Percent is a part of a whole, in percent.
type Percent float64

// UnmarshalText sets the percentage from a number, with or without a percent sign.
func (p *Percent) UnmarshalText(text []byte) error {
	f, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(string(text), "%")), 64)
	*p = Percent(f)
	return err
}

var (
	sizeText = regexp.MustCompile(`^ *([0-9]+|[0-9]*\.[0-9]+) *([A-Za-z]*) *$`)
	binary   = []string{"B", "KiB", "MiB", "GiB", "TiB"}
	units    = map[string]float64{
		"": 1, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
		"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	}
)

// ParseSize accepts a decimal number with a unit, or a number of bytes: 512MiB, 1.5GiB, 10GB, 4096.
// The units K, M, G and T, as in 4G, are refused, because each means two different sizes.
func ParseSize(s string) (Size, error) {
	m := sizeText.FindStringSubmatch(s)
	if m != nil && units[m[2]] != 0 {
		f, err := strconv.ParseFloat(m[1], 64)
		f *= units[m[2]]
		// Up to 2^53 a float holds each whole number. A number of bytes must be whole.
		if err == nil && f <= 1<<53 && (f == math.Trunc(f) || units[m[2]] > 1) {
			return Size(f), nil
		}
	}
	return 0, holdfast.Errorf(holdfast.KindInvalid, "size", "%s is not a size in bytes", holdfast.Quote(s)).
		WithHint("write a size as a number with KiB, MiB, GiB or TiB, as 512MiB")
}

// String returns the size in the largest binary unit that divides it, such as 512MiB.
func (s Size) String() string {
	unit := 0
	for s != 0 && s%1024 == 0 && unit < len(binary)-1 {
		s, unit = s/1024, unit+1
	}
	return strconv.FormatInt(int64(s), 10) + binary[unit]
}
