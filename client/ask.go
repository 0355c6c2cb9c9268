package client

import (
	"context"
	"encoding/json"
	"iter"
)

// ask sends a request as do does, and returns the answer.
func ask[T any](ctx context.Context, c *Client, r call) (out T, err error) {
	err = c.do(ctx, r, &out)
	return out, err
}

// askFor sends a request as do does, and returns the field of the answer that has the name.
func askFor[T any](ctx context.Context, c *Client, r call, name string) (T, error) {
	out := field[T]{name: name}
	err := c.do(ctx, r, &out)
	return out.value, err
}

// field decodes one field of a JSON object, the one with the name, into value.
type field[T any] struct {
	name  string
	value T
}

// UnmarshalJSON decodes the field with the name. If the object does not have it, value stays zero.
func (f *field[T]) UnmarshalJSON(data []byte) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil || all[f.name] == nil {
		return err
	}
	return json.Unmarshal(all[f.name], &f.value)
}

// pages yields the entries of all pages of a list, from the page that begins at a cursor. fetch returns a page and the cursor of
// the next one, the zero cursor with the last page. pages ends after the first error.
func pages[T any, C comparable](from C, fetch func(C) ([]T, C, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var last C
		for at := from; ; {
			page, next, err := fetch(at)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, one := range page {
				if !yield(one, nil) {
					return
				}
			}
			if at = next; at == last {
				return
			}
		}
	}
}
