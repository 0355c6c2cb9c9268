package audit

import (
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// Place is the place of a record in the audit log: the number of its chain and its number in
// that chain, both decimal with a colon between, such as 7:12. The zero value is the place before
// all records.
type Place struct {
	// Chain is the number of the server start that wrote the chain. Chain 0 holds the records of
	// releases that wrote one chain over all starts.
	Chain int64
	// N is the number of the record, from 1; 0 is the place before the chain's first record.
	N int64
}

// ParsePlace parses a place; invalid for anything but its only spelling.
func ParsePlace(s string) (Place, error) {
	chain, n, _ := strings.Cut(s, ":")
	var p Place
	var errs [2]error
	p.Chain, errs[0] = strconv.ParseInt(chain, 10, 64)
	p.N, errs[1] = strconv.ParseInt(n, 10, 64)
	if errs[0] != nil || errs[1] != nil || p.Chain < 0 || p.N < 0 || p.String() != s {
		return Place{}, holdfast.Errorf(holdfast.KindInvalid, "audit", "%s is not the place of an audit record, CHAIN:N", holdfast.Quote(s)).
			WithHint("use a place such as 7:12; holdfast audit head prints the newest one")
	}
	return p, nil
}

// String returns the place as CHAIN:N.
func (p Place) String() string {
	return strconv.FormatInt(p.Chain, 10) + ":" + strconv.FormatInt(p.N, 10)
}

// MarshalText returns the place as CHAIN:N.
func (p Place) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText parses a place.
func (p *Place) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePlace(string(text))
	return err
}

// Before reports whether p comes before q in an export: chains follow each other by number, and
// the records of a chain too.
func (p Place) Before(q Place) bool {
	return p.Chain < q.Chain || p.Chain == q.Chain && p.N < q.N
}
