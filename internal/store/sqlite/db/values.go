package db

import (
	"database/sql"
	"encoding/base64"
	"strconv"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Scanner is a row of a result.
type Scanner interface{ Scan(dst ...any) error }

// FromMS returns the time that is stored as ms.
func FromMS(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// FromNullMS is FromMS for a time that may be missing.
func FromNullMS(ms sql.NullInt64) *time.Time {
	if !ms.Valid {
		return nil
	}
	t := FromMS(ms.Int64)
	return &t
}

// ToNullMS is the reverse of FromNullMS.
func ToNullMS(t *time.Time) sql.NullInt64 {
	if t == nil {
		return sql.NullInt64{}
	}
	return sql.NullInt64{Int64: t.UnixMilli(), Valid: true}
}

// Collect reads all rows of a query whose result is rows and err. name stands in errors.
func Collect[T any](name string, rows *sql.Rows, err error, scan func(Scanner) (T, error)) ([]T, error) {
	if err != nil {
		return nil, Failure(name, err)
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, Failure(name, err)
		}
		out = append(out, v)
	}
	if err := rows.Err(); err != nil {
		return nil, Failure(name, err)
	}
	return out, nil
}

// Limit returns the size of a page: n within 1 and most, or zero if n is not positive.
func Limit(n, zero, most int) int {
	if n <= 0 {
		return zero
	}
	return min(n, most)
}

// EncodeCursor makes the cursor of a list. kind tells the cursors of different lists apart.
func EncodeCursor(kind byte, n int64) string {
	return base64.RawURLEncoding.EncodeToString(strconv.AppendInt([]byte{kind}, n, 10))
}

// DecodeCursor is the reverse of EncodeCursor; invalid for any other text.
func DecodeCursor(kind byte, c string) (int64, error) {
	if b, err := base64.RawURLEncoding.DecodeString(c); err == nil && len(b) > 1 && b[0] == kind {
		n, err := strconv.ParseInt(string(b[1:]), 10, 64)
		if err == nil && n > 0 && EncodeCursor(kind, n) == c {
			return n, nil
		}
	}
	return 0, holdfast.Errorf(holdfast.KindInvalid, "store.rows", "%s is not a cursor", holdfast.Quote(c)).
		WithHint("use the next value of the page before")
}
