package holdfast

import "context"

type requestKey struct{}

// WithRequestID gives what a request starts the request's id, for the log.
func WithRequestID(ctx context.Context, id string) context.Context {
	if id == "" {
		return ctx
	}
	return context.WithValue(ctx, requestKey{}, id)
}

// RequestIDOf is the id of the request that ctx serves, or that started what ctx is
// of; empty where there was none.
func RequestIDOf(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}
