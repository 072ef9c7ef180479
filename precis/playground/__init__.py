"""The playground: trained models side by side in a browser."""
