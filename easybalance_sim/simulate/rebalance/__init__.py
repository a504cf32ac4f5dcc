"""Plans over time: control loops that watch the load and decide when to re-plan, side by side on one trace."""
