package db

import (
	"database/sql"
	"encoding/base64"
	"strconv"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Scanner is a row of a query's result whose columns can be read.
type Scanner interface{ Scan(dst ...any) error }

// FromMS returns the UTC time that is stored as ms, milliseconds since the Unix epoch.
func FromMS(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// FromNullMS is FromMS for a column that may be null, which becomes nil.
func FromNullMS(ms sql.NullInt64) *time.Time {
	if !ms.Valid {
		return nil
	}
	t := FromMS(ms.Int64)
	return &t
}

// ToNullMS returns t as milliseconds since the Unix epoch, nil as null.
func ToNullMS(t *time.Time) sql.NullInt64 {
	if t == nil {
		return sql.NullInt64{}
	}
	return sql.NullInt64{Int64: t.UnixMilli(), Valid: true}
}

// Each calls fn for each row of a query, until fn fails, and closes the rows. rows and err are the result of the
// query.
func Each(rows *sql.Rows, err error, fn func(Scanner) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Collect scans all rows of a query into a list and closes them. rows and err are the result of
// the query; name is the operation in errors.
func Collect[T any](name string, rows *sql.Rows, err error, scan func(Scanner) (T, error)) (out []T, _ error) {
	err = Each(rows, err, func(sc Scanner) error {
		v, err := scan(sc)
		out = append(out, v)
		return err
	})
	if err != nil {
		return nil, Failure(name, err)
	}
	return out, nil
}

// Affected returns how many rows a statement changed. res and err are its result.
func Affected(res sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// Limit returns the size of a page for the requested size n: the parameter zero, which is the default, if n is
// not positive, and never more than most.
func Limit(n, zero, most int) int {
	if n <= 0 {
		return zero
	}
	return min(n, most)
}

// EncodeCursor returns the cursor for the position n in a list. kind is a letter that differs for each list,
// so that a cursor of one list is refused by the others.
func EncodeCursor(kind byte, n int64) string {
	return base64.RawURLEncoding.EncodeToString(strconv.AppendInt([]byte{kind}, n, 10))
}

// DecodeCursor returns the position in a list that EncodeCursor encoded as c; invalid if c is not a cursor of
// this kind.
func DecodeCursor(kind byte, c string) (int64, error) {
	if b, err := base64.RawURLEncoding.DecodeString(c); err == nil && len(b) > 1 && b[0] == kind {
		n, err := strconv.ParseInt(string(b[1:]), 10, 64)
		if err == nil && n > 0 && EncodeCursor(kind, n) == c {
			return n, nil
		}
	}
	return 0, holdfast.Errorf(holdfast.KindInvalid, "store.rows", "%s is not a cursor that a page of this list returned", holdfast.Quote(c)).
		WithHint("pass the value of next from the previous page")
}
