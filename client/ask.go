package client

import (
	"context"
	"encoding/json"
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

// field is a JSON object of which only the field with the name is decoded.
type field[T any] struct {
	name  string
	value T
}

// UnmarshalJSON decodes the field; an object without it is no error.
func (f *field[T]) UnmarshalJSON(data []byte) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil || all[f.name] == nil {
		return err
	}
	return json.Unmarshal(all[f.name], &f.value)
}
