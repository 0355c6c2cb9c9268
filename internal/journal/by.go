package journal

import "context"

type byKey struct{}

// As marks a ctx with who asks: "owner", or "key" and a key's id. Changes made with
// it are recorded as theirs.
func As(ctx context.Context, who string) context.Context {
	return context.WithValue(ctx, byKey{}, who)
}

// By is who asks; empty for the server itself.
func By(ctx context.Context) string {
	who, _ := ctx.Value(byKey{}).(string)
	return who
}
