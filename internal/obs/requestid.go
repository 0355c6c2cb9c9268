package obs

import "context"

type requestKey struct{}

// WithRequestID returns a context that carries the id of the HTTP request that the work
// belongs to, for the server's log.
func WithRequestID(ctx context.Context, id string) context.Context {
	if id == "" {
		return ctx
	}
	return context.WithValue(ctx, requestKey{}, id)
}

// RequestIDOf returns the id of the HTTP request that ctx serves or that started the work
// of ctx; empty if ctx carries none.
func RequestIDOf(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}
