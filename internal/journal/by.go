package journal

import "context"

type byKey struct{}

// As returns a context that names the caller of a request: "owner", or "key" and an API key's id.
// Changes made with it are recorded as made by that caller.
func As(ctx context.Context, who string) context.Context {
	return context.WithValue(ctx, byKey{}, who)
}

// By returns the caller that As put into a context, or "" for the server itself.
func By(ctx context.Context) string {
	who, _ := ctx.Value(byKey{}).(string)
	return who
}
