package config

import (
	"math"
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

// Percent is a part in percent.
type Percent float64

// UnmarshalText sets the part from a number, with or without a percent sign.
func (p *Percent) UnmarshalText(text []byte) error {
	f, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(string(text), "%")), 64)
	*p = Percent(f)
	return err
}

var units = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40},
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"TB", 1e12},
	{"GB", 1e9},
	{"MB", 1e6},
	{"kB", 1e3},
	{"B", 1},
	{"", 1},
}

// ParseSize accepts a decimal number with a unit: 512MiB, 1.5GiB, 10GB, 4096.
// A bare letter such as 4G is refused, because it means two different things.
func ParseSize(s string) (Size, error) {
	text := strings.TrimSpace(s)
	digits := strings.TrimRight(text, "TGMKkiB ")
	unit := strings.TrimSpace(text[len(digits):])
	for _, u := range units {
		if u.name != unit || strings.Trim(digits, "0123456789.") != "" {
			continue
		}
		if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
			if n > math.MaxInt64/u.bytes {
				break
			}
			return Size(n * u.bytes), nil
		}
		f, err := strconv.ParseFloat(digits, 64)
		f *= float64(u.bytes)
		if err != nil || u.bytes == 1 || f > math.MaxInt64/2 {
			break
		}
		return Size(f), nil
	}
	return 0, holdfast.Errorf(holdfast.KindInvalid, "size", "%s is not a size", holdfast.Quote(s)).
		WithHint("write a number with KiB, MiB, GiB or TiB, as 512MiB")
}

// String returns the size in the largest binary unit that divides it, such as 512MiB, otherwise in
// bytes.
func (s Size) String() string {
	for _, u := range units[:4] {
		if s > 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}
